"""The network layer: acceptors, one processor task per connection, framing, and connection limits."""
