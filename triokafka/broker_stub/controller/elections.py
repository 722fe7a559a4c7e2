"""The election of a partition's leader: which replica leads next."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from triokafka.broker_stub.metadata.image import NO_LEADER


class Election(enum.Enum):
    """The kind of election."""

    ONLINE = "online"
    """Keep the current leader if possible, otherwise elect an in-sync replica; the topic decides about any other."""
    PREFERRED = "preferred"
    """The first assigned replica if it is in sync, otherwise another in-sync replica."""
    UNCLEAN = "unclean"
    """As ``ONLINE``, but if necessary elect a replica that is not in sync."""


def next_leader(
    current: int,
    election: Election,
    alive: Callable[[int], bool],
    *,
    replicas: Sequence[int],
    isr: Sequence[int],
    elr: Sequence[int],
    last_known_elr: Sequence[int],
) -> tuple[int, bool]:
    """Return the next leader or `NO_LEADER`, and whether it may lack committed records.

    The current leader stays while it is in sync and alive. Otherwise the next one is, in this order: the first assigned
    replica that is in sync and alive; if no replica is in sync, the first eligible leader replica, which has all
    committed records (KIP-966), and after those the last known leader; in an unclean election, the first replica alive.
    """
    candidates = [*replicas[:1], current] if election is Election.PREFERRED else [current]
    eligible = isr or elr
    for replica in (*candidates, *replicas):
        if replica in eligible and alive(replica):
            return replica, False
    if not eligible and len(last_known_elr) == 1 and alive(last_known_elr[0]):
        return last_known_elr[0], True
    if election is Election.UNCLEAN:
        leader = next((replica for replica in replicas if alive(replica)), NO_LEADER)
        return leader, leader != NO_LEADER
    return NO_LEADER, False
