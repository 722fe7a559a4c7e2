"""Placement of the replicas of new partitions: round-robin over the brokers, and over the racks if brokers have racks.

Pure functions. The starting points are random, or fixed for tests and for adding partitions to a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from triokafka.errors import InvalidReplicationFactorError
from triokafka.named_tuple import NamedTuple


class UsableBroker(NamedTuple):
    """A broker that may hold replicas. A fenced broker gets replicas only when the others do not suffice, and never
    leads.
    """

    broker_id: int
    rack: str | None = None
    fenced: bool = False


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Return all brokers, alternating between racks; racks by name, the brokers of a rack by id."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    rows = [by_rack[name] for name in sorted(by_rack)]
    return [row[i] for i in range(max(map(len, rows), default=0)) for row in rows if i < len(row)]


def assign_replicas(
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    first_partition: int = 0,
    racks: Mapping[int, str] | None = None,
) -> list[tuple[int, ...]]:
    """Return the replicas of ``partitions`` new partitions, numbered from ``first_partition``.

    First replicas are assigned round-robin from ``start_index``. The others follow at a distance that starts with
    ``shift`` and grows by one with every round, so that the followers of the partitions that one broker leads are
    spread over the rest. With ``racks``, a rack gets a second replica only when every rack has one. No broker gets two
    replicas of a partition.
    """
    order = alternate_racks(racks) if racks else list(brokers)
    count = len(order)
    number_of_racks = len(set(racks.values())) if racks else 1
    result = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start_index) % count
        replicas = [order[first]]
        step = 0
        while len(replicas) < replication_factor:
            distance = 1 + (shift * number_of_racks + step) % (count - 1)
            candidate = order[(first + distance) % count]
            step += 1
            if racks is None or _welcome(candidate, replicas, racks, number_of_racks):
                replicas.append(candidate)
        result.append(tuple(replicas))
    return result


def _welcome(candidate: int, replicas: Sequence[int], racks: Mapping[int, str], number_of_racks: int) -> bool:
    if candidate in replicas:
        return False
    used = {racks[broker_id] for broker_id in replicas}
    return racks[candidate] not in used or len(used) == number_of_racks


def place(
    brokers: Iterable[UsableBroker],
    partitions: int,
    replication_factor: int,
    *,
    pick: Callable[[int], int],
    first_partition: int = 0,
    leader_of_first: int | None = None,
) -> list[tuple[int, ...]]:
    """Place new partitions on the brokers of a cluster.

    ``pick(n)`` chooses a starting point below n. Racks count only if every broker that is not fenced has one.
    ``leader_of_first`` is the leader of partition 0 of an existing topic: placement continues from there, so that
    adding partitions in steps gives the same spread as creating them together.

    Raises:
        InvalidReplicationFactorError: not positive, more than there are brokers, or every broker is fenced.
    """
    usable = sorted(brokers, key=lambda broker: broker.broker_id)
    live = [broker for broker in usable if not broker.fenced]
    if replication_factor <= 0:
        raise InvalidReplicationFactorError(f"the replication factor must be positive, not {replication_factor}")
    if replication_factor > len(usable):
        raise InvalidReplicationFactorError(
            f"the replication factor {replication_factor} needs as many brokers, only {len(usable)} are registered"
        )
    if not live:
        raise InvalidReplicationFactorError("all brokers are fenced")
    ids = [broker.broker_id for broker in live]
    if leader_of_first is None:
        start_index, shift = pick(len(ids)), pick(len(ids))
    else:
        start_index = shift = next((i for i, broker_id in enumerate(ids) if broker_id >= leader_of_first), 0)
    racks = {broker.broker_id: broker.rack for broker in live if broker.rack is not None}
    placed = assign_replicas(
        ids,
        partitions,
        min(replication_factor, len(ids)),
        start_index=start_index,
        shift=shift,
        first_partition=first_partition,
        racks=racks if len(racks) == len(live) else None,
    )
    fenced = [broker.broker_id for broker in usable if broker.fenced]
    missing = replication_factor - len(ids)
    if missing <= 0:
        return placed
    return [(*replicas, *_rotated(fenced, index)[:missing]) for index, replicas in enumerate(placed)]


def _rotated(items: Sequence[int], by: int) -> tuple[int, ...]:
    by %= len(items)
    return (*items[by:], *items[:by])
