"""Groups under the new consumer protocol (KIP-848): the coordinator assigns, and every member follows at its own pace.

A group has an epoch that grows with every change of what its members want; for each epoch one target assignment is
computed; each member is led to its part of it, giving up what is not its own any more before others get it. All of this
is records: `group` is what they say once replayed, `changes` are the records, and the other modules decide which to
write: `heartbeat` when a member speaks, or `classic_members` when it still speaks the classic protocol, `advance` what
follows from that, `reconcile` what it may own meanwhile, `leaving` when it goes or falls silent, and `migration` when
the group changes from the classic protocol to this one or back.
"""
