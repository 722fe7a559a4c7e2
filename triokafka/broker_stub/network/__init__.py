"""From a socket to a request and back: acceptors, one processor task per connection, connection limits, handler slots."""
