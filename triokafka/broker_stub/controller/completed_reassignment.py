"""The end of a reassignment: when the old replicas of a partition go (KIP-455). Pure."""

from __future__ import annotations

from collections.abc import Sequence


def completed_reassignment(
    replicas: Sequence[int], isr: Sequence[int], removing: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return replicas and in-sync set without the old replicas once the whole target is in sync; None before.

    The old replicas stay while they alone are in sync.
    """
    target = tuple(replica for replica in replicas if replica not in removing)
    in_sync = tuple(replica for replica in isr if replica not in removing)
    return (target, in_sync) if target and in_sync and set(target) <= set(in_sync) else None
