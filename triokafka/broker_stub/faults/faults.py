"""Faults that a test or the control endpoint switches on. Off unless armed.

Two kinds. A `Fault` puts an error into the answer for one item: an API, a topic, a partition; the rest of the request
stays real. A `RequestFault` concerns a request as a whole: it is delayed, its answer is late or lost, its connection is
closed, its client is throttled.

Both are armed with `Faults.arm` and used up by what they match: the first ``skip`` matches pass, then each happens with
probability ``chance``, ``times`` times in all (-1: until disarmed; 0: never). Several may be armed; the first that
matches acts.

What for, in terms of a producer:

================================================  ======================================================================
refused, and to be sent again                     ``Fault(NotLeaderForPartitionError, api_key=0, leader=(2, 7))``
refused for good                                  ``Fault(TopicAuthorizationFailedError, api_key=0)``
too large, so that the batch is split             ``Fault(MessageSizeTooLargeError, api_key=0)``
appended, though the answer says an error         ``Fault(RequestTimedOutError, api_key=0, after_append=True)``
appended, and the answer lost with the connection ``RequestFault(api_key=0, close="after")``
appended, and the answer never sent               ``RequestFault(api_key=0, lose_answer=True)``
appended, and the answer cut in the middle        ``RequestFault(api_key=0, close="within")``
not appended, and the connection closed           ``RequestFault(api_key=0, close="before")``
late                                              ``RequestFault(api_key=0, delay_ms=500)``, ``answer_delay_ms=500``
throttled                                         ``RequestFault(api_key=0, throttle_ms=1000)``
a topic without a leader                          ``Fault(LeaderNotAvailableError, api_key=3, topic="t")``
a topic that cannot be created                    ``Fault(PolicyViolationError, api_key=19, topic="t")``
a position that is not stored                     ``Fault(RequestTimedOutError, api_key=8, topic="t", partition=0)``
a member that is told to come back                ``Fault(RebalanceInProgressError, api_key=12, group="g")``
a third of all, at random                         any of these with ``times=-1, chance=1 / 3``
================================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from triokafka.errors import BrokerResponseError, ConfigurationError

INJECTED: Final = "a fault was injected here"

_LARGEST_INT: Final = 2**31 - 1
"""What answers have room for; 24 days in milliseconds."""

Close = Literal["before", "after", "within"]


@dataclass(slots=True, eq=False)
class Fault:
    """Answer with ``error`` for matching items; None matches everything.

    With a ``topic``, a ``partition`` or a ``group``, items are what the answer has an error code for: partitions, or
    topics, groups and resources. What changes something is not done for them (OffsetCommit, CreateTopics, DeleteTopics,
    DeleteRecords, CreatePartitions, DeleteGroups, both AlterConfigs). Without any of these, items are partitions in
    Produce, Fetch and ListOffsets, and any other API fails as a whole, where its answer has room for an error;
    otherwise the connection is closed. A request of one group (Heartbeat) fails as a whole also when it is named.

    Args:
        after_append: Produce only: the records are appended, and only the answer says ``error``.
        leader: leader id and epoch that a NOT_LEADER_OR_FOLLOWER answer names (KIP-951), the true ones when None.
        skip: let so many matching items pass first.
        chance: the probability that a match is a hit.
    """

    error: type[BrokerResponseError]
    api_key: int | None = None
    topic: str | None = None
    partition: int | None = None
    times: int = 1
    after_append: bool = False
    leader: tuple[int, int] | None = None
    skip: int = 0
    chance: float = 1.0
    group: str | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class RequestFault:
    """Something that goes wrong with matching requests as a whole; None matches everything.

    Args:
        delay_ms: the request waits so long before it is worked on; its connection is not read meanwhile.
        answer_delay_ms: it is worked on at once, and its answer waits.
        throttle_ms: the answer tells the client to stay silent for so long, and its connection is not read meanwhile
            (KIP-219).
        lose_answer: the answer is not sent, and the connection goes on.
        close: close the connection ``before`` the request is worked on, ``after`` that without an answer, or
            ``within`` the answer, half of which is sent.
        skip: let so many matching requests pass first.
        chance: the probability that a match is a hit.
    """

    api_key: int | None = None
    client_id: str | None = None
    times: int = 1
    skip: int = 0
    chance: float = 1.0
    delay_ms: int = 0
    answer_delay_ms: int = 0
    throttle_ms: int = 0
    lose_answer: bool = False
    close: Close | None = None


AnyFault = TypeVar("AnyFault", Fault, RequestFault)


def check(fault: Fault | RequestFault) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        ConfigurationError: says which.
    """
    if fault.times < -1:
        raise ConfigurationError(f"times={fault.times}: a fault happens so often, or -1: until it is disarmed")
    if fault.skip < 0:
        raise ConfigurationError(f"skip={fault.skip}: so many matches pass first, 0 or more")
    if not 0 <= fault.chance <= 1:
        raise ConfigurationError(f"chance={fault.chance}: a probability is from 0 to 1")
    if isinstance(fault, RequestFault):
        for name in ("delay_ms", "answer_delay_ms", "throttle_ms"):
            if not 0 <= getattr(fault, name) <= _LARGEST_INT:
                raise ConfigurationError(f"{name}={getattr(fault, name)}: from 0 to {_LARGEST_INT} milliseconds")
    elif fault.leader is not None and not all(-1 <= number <= _LARGEST_INT for number in fault.leader):
        raise ConfigurationError(f"leader={fault.leader}: id and epoch are from -1 to {_LARGEST_INT}")


class Faults:
    """The armed faults of one broker.

    Args:
        chance: a number in [0, 1), drawn for faults that happen with a probability: the world's randomness.
        beside: faults that hold here as well, when none of these matches: those of a whole cluster.
    """

    def __init__(self, chance: Callable[[], float] = lambda: 0.0, *, beside: Faults | None = None) -> None:
        self._chance = chance
        self._beside = beside
        self._items: list[Fault] = []
        self._requests: list[RequestFault] = []

    @property
    def armed(self) -> bool:
        """Whether any is on."""
        if self._items or self._requests:
            return True
        return self._beside is not None and self._beside.armed

    @property
    def all(self) -> list[Fault | RequestFault]:
        """What is armed, with how often it will still happen."""
        return [*self._items, *self._requests]

    def arm(self, fault: Fault | RequestFault) -> None:
        """Switch a fault on; one for 0 times never happens. Raises `ConfigurationError`: see `check`."""
        check(fault)
        if not fault.times:
            return
        if isinstance(fault, Fault):
            self._items.append(fault)
        else:
            self._requests.append(fault)

    def disarm(self, fault: Fault | RequestFault) -> None:
        """Switch one off; one that is used up already, or was never armed, is fine."""
        if isinstance(fault, Fault):
            self._items = [armed for armed in self._items if armed is not fault]
        else:
            self._requests = [armed for armed in self._requests if armed is not fault]

    def disarm_all(self) -> None:
        """Switch all off."""
        self._items.clear()
        self._requests.clear()

    def for_item(
        self, api_key: int, topic: str | None = None, partition: int | None = None, *, after_append: bool = False
    ) -> Fault | None:
        """The first armed `Fault` that matches, used up by one: answer with its error."""
        for fault in self._items:
            if (
                fault.after_append is after_append
                and fault.group is None
                and fault.api_key in (None, api_key)
                and fault.topic in (None, topic)
                and fault.partition in (None, partition)
                and self._hits(fault, self._items)
            ):
                return fault
        if self._beside is not None:
            return self._beside.for_item(api_key, topic, partition, after_append=after_append)
        return None

    def for_named(
        self, api_key: int, topic: str | None, partition: int | None, group: str | None = None
    ) -> Fault | None:
        """As `for_item`, among the faults that name what they are about: those without concern whole requests."""
        for fault in self._items:
            if (
                not fault.after_append
                and (fault.topic is not None or fault.partition is not None or fault.group is not None)
                and fault.api_key in (None, api_key)
                and fault.topic in (None, topic)
                and fault.partition in (None, partition)
                and fault.group in (None, group)
                and self._hits(fault, self._items)
            ):
                return fault
        return None if self._beside is None else self._beside.for_named(api_key, topic, partition, group)

    def check(self, api_key: int, topic: str | None = None, partition: int | None = None) -> None:
        """Raise the error of the first armed `Fault` that matches, and use it up by one."""
        fault = self.for_item(api_key, topic, partition)
        if fault is not None:
            raise fault.error(INJECTED)

    def for_request(self, api_key: int, client_id: str) -> RequestFault | None:
        """The first armed `RequestFault` that matches, used up by one."""
        for fault in self._requests:
            if (
                fault.api_key in (None, api_key)
                and fault.client_id in (None, client_id)
                and self._hits(fault, self._requests)
            ):
                return fault
        return None if self._beside is None else self._beside.for_request(api_key, client_id)

    def _hits(self, fault: AnyFault, armed: list[AnyFault]) -> bool:
        if not fault.times:
            return False  # used up, though a thread that disarmed another one has put it back
        if fault.skip > 0:
            fault.skip -= 1
            return False
        if fault.chance < 1.0 and self._chance() >= fault.chance:
            return False
        if fault.times > 0:
            fault.times -= 1
            if not fault.times and fault in armed:  # a thread may have disarmed all meanwhile
                armed.remove(fault)  # the caller's iteration ends here
        return True
