"""The quorum of the metadata log: a pure state machine, its durable state, and the thin tasks around it.

`raft_client.RaftClient` runs one node of the quorum. `raft_core.RaftCore` decides; it knows no clock, socket or task.
`raft_log_interface.RaftLog` and `election_state.QuorumStateStore` are the interfaces of the storage behind them.
"""
