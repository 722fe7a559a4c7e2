"""Groups under the classic protocol: members, rebalances, liveness, and the stored form. No I/O."""
