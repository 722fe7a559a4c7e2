"""A consumer's membership in its group: the protocol's state, and the tasks that join and send heartbeats."""
