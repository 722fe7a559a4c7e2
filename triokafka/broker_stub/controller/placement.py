"""Placement of replicas: round-robin over the brokers, and over the racks if brokers have racks.

`place` is for new partitions, `assign_replicas` for the plans of ``triokafka reassign generate``, as in Kafka. Pure
functions. The starting points are random, or fixed for tests and for adding partitions to a topic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from triokafka.errors import InvalidReplicationFactorError
from triokafka.named_tuple import NamedTuple

T = TypeVar("T")


class UsableBroker(NamedTuple):
    """A broker that may hold replicas. A fenced broker gets replicas only when there are not enough others, and never
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
    racks: Mapping[int, str] | None = None,
) -> list[tuple[int, ...]]:
    """Return the replicas of ``partitions`` partitions, numbered from 0.

    First replicas are assigned round-robin from ``start_index``. The others follow at a distance that starts with
    ``shift`` and grows by one with every round, so that the followers of the partitions that one broker leads are
    spread over the rest. With ``racks``, a rack gets a second replica only when every rack has one. No broker gets two
    replicas of a partition.
    """
    order = alternate_racks(racks) if racks else list(brokers)
    count = len(order)
    number_of_racks = len(set(racks.values())) if racks else 1
    result = []
    for partition in range(partitions):
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


class _Rack(NamedTuple):
    """The brokers of a rack that are up, and its fenced ones, both by id."""

    live: list[int]
    fenced: list[int]


def place(
    brokers: Iterable[UsableBroker],
    partitions: int,
    replication_factor: int,
    *,
    pick: Callable[[int], int],
    first_partition: int = 0,
    first_replica: int | None = None,
) -> list[tuple[int, ...]]:
    """Place new partitions on the brokers of a cluster, striped over its racks as Kafka's controller does.

    Leaders are assigned round-robin over the brokers that are up, which alternate between the racks. The other replicas
    go to one rack after the other; a rack gives a fenced broker only when none of its live ones is left. Brokers
    without a rack are in one rack of their own. Which brokers follow a leader changes with every round.

    ``pick(n)`` chooses a starting point below n. ``first_replica`` is that of partition 0 of an existing topic:
    placement continues from there, so that adding partitions in steps gives the same spread as creating them together.

    Raises:
        InvalidReplicationFactorError: not positive, more than there are brokers, or every broker is fenced.
    """
    racks: dict[str | None, _Rack] = {}
    usable = sorted(brokers, key=lambda broker: (broker.rack is not None, broker.rack or "", broker.broker_id))
    for broker in usable:
        rack = racks.setdefault(broker.rack, _Rack([], []))
        (rack.fenced if broker.fenced else rack.live).append(broker.broker_id)
    longest = max((len(rack.live) for rack in racks.values()), default=0)
    order = [rack.live[i] for i in range(longest) for rack in racks.values() if i < len(rack.live)]
    if replication_factor <= 0:
        raise InvalidReplicationFactorError(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if not order:
        raise InvalidReplicationFactorError(
            "All brokers are currently fenced, or have all their log directories cordoned."
        )
    if replication_factor > len(usable):
        raise InvalidReplicationFactorError(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(usable)} "
            f"broker(s) are registered or some brokers have all their log directories cordoned."
        )
    if first_replica in order:
        start = turn = order.index(first_replica)
    else:
        start, turn = pick(len(order)), pick(len(order))
    rack_of = {broker_id: number for number, rack in enumerate(racks.values()) for broker_id in rack.live}
    result = []
    for partition in range(first_partition, first_partition + partitions):
        leader = order[(partition + start) % len(order)]
        in_order = list(racks.values())
        own = in_order.pop(rack_of[leader])
        round_number = turn + partition // len(order)
        others = _rotated(in_order, rack_of[leader] + round_number)
        member = partition + round_number // (len(others) or 1)  # each rack comes first once before the member changes
        queues = [deque((*_rotated(rack.live, member), *_rotated(rack.fenced, member))) for rack in others]
        position = own.live.index(leader)
        rest = _rotated([*own.live[position + 1 :], *own.live[:position]], round_number)
        queues.append(deque((*rest, *_rotated(own.fenced, member))))
        result.append((leader, *islice(_in_turn(queues), replication_factor - 1)))
    return result


def _in_turn(queues: Sequence[deque[int]]) -> Iterator[int]:
    """Yield the first item of each queue, then the second of each, and so on."""
    while any(queues):
        for queue in queues:
            if queue:
                yield queue.popleft()


def _rotated(items: Sequence[T], by: int) -> Sequence[T]:
    by %= len(items) or 1
    return (*items[by:], *items[:by])
