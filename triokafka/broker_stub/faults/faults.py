"""Faults that a test or the control endpoint arms. None is armed by default.

There are two kinds. A `Fault` puts an error into the response for one item: an API, a topic or a partition; the broker
processes the rest of the request normally. A `RequestFault` applies to a whole request: it delays the request, delays
or drops the response, closes the connection, or throttles the client.

`Faults.arm` arms both. The first ``skip`` matches pass; each further match triggers the fault with probability
``chance``, at most ``times`` times (-1: until disarmed; 0: never). If several armed faults match, the first one acts.

Examples:

================================================  ======================================================================
refused with a retriable error                    ``Fault(NotLeaderForPartitionError, api_key=0, leader=(2, 7))``
refused with a fatal error                        ``Fault(TopicAuthorizationFailedError, api_key=0)``
too large, so that the batch is split             ``Fault(MessageSizeTooLargeError, api_key=0)``
appended, but the response contains an error      ``Fault(RequestTimedOutError, api_key=0, after_append=True)``
appended, then the connection closed              ``RequestFault(api_key=0, close="after")``
appended, but the response never sent             ``RequestFault(api_key=0, lose_answer=True)``
appended, but half of the response sent           ``RequestFault(api_key=0, close="within")``
not appended, and the connection closed           ``RequestFault(api_key=0, close="before")``
late                                              ``RequestFault(api_key=0, delay_ms=500)``, ``answer_delay_ms=500``
throttled                                         ``RequestFault(api_key=0, throttle_ms=1000)``
a topic without a leader                          ``Fault(LeaderNotAvailableError, api_key=3, topic="t")``
a topic that cannot be created                    ``Fault(PolicyViolationError, api_key=19, topic="t")``
an offset commit that fails                       ``Fault(RequestTimedOutError, api_key=8, topic="t", partition=0)``
a member that must rejoin                         ``Fault(RebalanceInProgressError, api_key=12, group="g")``
a random third of all requests                    any of these with ``times=-1, chance=1 / 3``
================================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from triokafka.errors import BrokerResponseError, ConfigurationError

INJECTED: Final = "a fault was injected here"

_LARGEST_INT: Final = 2**31 - 1
"""Maximum of a protocol int32; 24 days in milliseconds."""

Close = Literal["before", "after", "within"]


@dataclass(slots=True, eq=False)
class Fault:
    """Return ``error`` for matching items; None matches everything.

    With a ``topic``, a ``partition`` or a ``group``, items are the elements of the response with an error code:
    partitions, topics, groups or resources. The broker does not execute changes of faulty items (OffsetCommit,
    CreateTopics, DeleteTopics, DeleteRecords, CreatePartitions, DeleteGroups, both AlterConfigs). Without any of these
    fields, items are partitions in Produce, Fetch and ListOffsets. Any other API then fails as a whole if its response
    can contain an error; otherwise the broker closes the connection. A request of one group (such as Heartbeat) also
    fails as a whole when the fault names the group.

    Args:
        after_append: Produce only: append the records and return ``error``.
        leader: leader id and epoch in a NOT_LEADER_OR_FOLLOWER response (KIP-951); the real ones when None.
        skip: number of matching items to let pass first.
        chance: the probability that a match triggers the fault.
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
    """A fault of matching requests as a whole; None matches everything.

    Args:
        delay_ms: delay before the broker processes the request. It does not read from the connection meanwhile.
        answer_delay_ms: delay of the response after processing.
        throttle_ms: throttle time in the response. The broker does not read from the connection for that time
            (KIP-219).
        lose_answer: do not send the response, and keep the connection open.
        close: close the connection ``before`` processing, ``after`` processing without a response, or ``within`` the
            response, after half of it.
        skip: number of matching requests to let pass first.
        chance: the probability that a match triggers the fault.
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
    """Validate the numbers of a fault.

    Raises:
        ConfigurationError: a number is invalid; the message names it.
    """
    if fault.times < -1:
        raise ConfigurationError(
            f"times={fault.times}: the number of faults must be 0 or more, or -1 for all until disarmed"
        )
    if fault.skip < 0:
        raise ConfigurationError(f"skip={fault.skip}: the number of skipped matches must be 0 or more")
    if not 0 <= fault.chance <= 1:
        raise ConfigurationError(f"chance={fault.chance}: a probability must be from 0 to 1")
    if isinstance(fault, RequestFault):
        for name in ("delay_ms", "answer_delay_ms", "throttle_ms"):
            if not 0 <= getattr(fault, name) <= _LARGEST_INT:
                raise ConfigurationError(f"{name}={getattr(fault, name)}: must be from 0 to {_LARGEST_INT} ms")
    elif fault.leader is not None and not all(-1 <= number <= _LARGEST_INT for number in fault.leader):
        raise ConfigurationError(f"leader={fault.leader}: id and epoch must be from -1 to {_LARGEST_INT}")


class Faults:
    """The armed faults of one broker.

    Args:
        chance: returns a random number in [0, 1) for faults with a probability, from the world's random generator.
        beside: faults that apply when none of these matches, such as those of a whole cluster.
    """

    def __init__(self, chance: Callable[[], float] = lambda: 0.0, *, beside: Faults | None = None) -> None:
        self._chance = chance
        self._beside = beside
        self._items: list[Fault] = []
        self._requests: list[RequestFault] = []

    @property
    def armed(self) -> bool:
        """Whether any fault is armed."""
        if self._items or self._requests:
            return True
        return self._beside is not None and self._beside.armed

    @property
    def all(self) -> list[Fault | RequestFault]:
        """The armed faults; their ``times`` is the remaining number of times."""
        return [*self._items, *self._requests]

    def arm(self, fault: Fault | RequestFault) -> None:
        """Arm a fault; one with ``times=0`` has no effect. Raises `ConfigurationError`: see `check`."""
        check(fault)
        if not fault.times:
            return
        if isinstance(fault, Fault):
            self._items.append(fault)
        else:
            self._requests.append(fault)

    def disarm(self, fault: Fault | RequestFault) -> None:
        """Disarm a fault. No effect on a fault that is exhausted or was never armed."""
        if isinstance(fault, Fault):
            self._items = [armed for armed in self._items if armed is not fault]
        else:
            self._requests = [armed for armed in self._requests if armed is not fault]

    def disarm_all(self) -> None:
        """Disarm all faults."""
        self._items.clear()
        self._requests.clear()

    def for_item(
        self, api_key: int, topic: str | None = None, partition: int | None = None, *, after_append: bool = False
    ) -> Fault | None:
        """Return the first armed `Fault` that matches, and count the use. The caller responds with its error."""
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
        """Like `for_item`, but only for faults that name a topic, a partition or a group."""
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
        """Raise the error of the first armed `Fault` that matches, and count the use."""
        fault = self.for_item(api_key, topic, partition)
        if fault is not None:
            raise fault.error(INJECTED)

    def for_request(self, api_key: int, client_id: str) -> RequestFault | None:
        """Return the first armed `RequestFault` that matches, and count the use."""
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
            return False  # exhausted: a concurrent disarm in another thread can restore an exhausted fault
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
