"""Classic consumer groups: members, rebalances, liveness, and the stored form. No I/O."""
