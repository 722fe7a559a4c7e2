"""Consumer groups under the new protocol (KIP-848): the coordinator assigns; each member reconciles at its own pace.

A group has an epoch that grows with every change of its members' subscriptions. The coordinator computes one target
assignment per epoch and moves each member towards its part: a member revokes partitions before another receives them.
All of this is stored as records:

- `consumer_group` is the state that the records replay into, `records` are the changes and their records.
- `heartbeat` handles a member of the consumer protocol, `classic_members` a member of the classic protocol.
- `advance` computes epoch, target assignment and the member's next step; `reconcile` computes that step alone.
- `leaving` removes members; `migration` converts a group between the two protocols.
"""
