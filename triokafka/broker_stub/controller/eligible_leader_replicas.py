"""Eligible leader replicas (KIP-966): which replicas outside the in-sync set have all committed records. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.broker_stub.metadata.image import PartitionImage


def eligible_leader_replicas(
    partition: PartitionImage, replicas: Sequence[int], isr: Sequence[int], *, min_insync_replicas: int, unclean: int
) -> tuple[int, ...]:
    """Return the members that left the in-sync set while too few are in sync.

    ``replicas`` and ``isr`` are those after the change. ``unclean`` is a broker that may lack records.
    """
    if len(isr) >= min_insync_replicas:
        return ()
    return tuple(
        replica
        for replica in dict.fromkeys((*partition.eligible_leader_replicas, *partition.isr))
        if replica not in isr and replica in replicas and replica != unclean
    )
