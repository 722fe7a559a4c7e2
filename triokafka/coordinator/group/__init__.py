"""Classic consumer groups: members, rounds of a rebalance, liveness, and how they are stored. Pure."""
