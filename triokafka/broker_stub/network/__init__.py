"""From a socket to a request and back: acceptors, a processor task per connection, limits, handler slots."""
