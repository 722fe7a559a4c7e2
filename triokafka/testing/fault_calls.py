"""What a test calls to have requests fail, late, lost or cut off; shared by every handle of a broker or a cluster.

Each call arms one fault (`triokafka.broker_stub.faults.faults`), which the first matching requests use up: ``times`` of
them, after ``skip`` that pass, each with probability ``chance``; ``times=-1`` goes on until ``faults.disarm`` or
``reset``. They may be called from any thread, and return the fault, so that it can be disarmed:
``broker.faults.disarm(fault)``.

``api`` is a name (``"Produce"``) or a key, None for every API. An unknown name is an error that has the nearest one.
"""

from __future__ import annotations

from collections.abc import Callable

from triokafka.broker_stub.faults.faults import Close, Fault, Faults, RequestFault
from triokafka.broker_stub.faults.names import api_key, error_class
from triokafka.errors import BrokerResponseError

Api = int | str | None
Error = int | str | type[BrokerResponseError]


class FaultCalls:
    """``faults`` holds what is armed."""

    def __init__(self, chance: Callable[[], float], *, beside: Faults | None = None) -> None:
        self.faults = Faults(chance, beside=beside)

    def fail_next(
        self,
        api: Api,
        error: Error,
        *,
        times: int = 1,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        after_append: bool = False,
        skip: int = 0,
        chance: float = 1.0,
    ) -> Fault:
        """Answer the next ``times`` matching requests or items of requests with ``error``; they are not carried out.

        What is not named matches everything. With ``topic``, ``partition`` or ``group`` only those items of a request
        fail, and the rest is real.

        Args:
            error: Kafka's name (``"NOT_LEADER_OR_FOLLOWER"``), its code, or a class of `triokafka.errors`.
            after_append: of Produce: the records are appended, and only the answer says that they were not.

        Raises:
            UnknownNameError: there is no such API or error.
        """
        fault = Fault(
            error_class(error),
            api_key=_key(api),
            topic=topic,
            partition=partition,
            times=times,
            after_append=after_append,
            skip=skip,
            chance=chance,
            group=group,
        )
        self.faults.arm(fault)
        return fault

    def drop_replies(
        self, api: Api = None, *, times: int = 1, client_id: str | None = None, skip: int = 0, chance: float = 1.0
    ) -> RequestFault:
        """Carry the next requests out and never answer; their connections go on."""
        return self._arm(api, RequestFault(lose_answer=True), times, client_id, skip, chance)

    def delay_replies(
        self,
        api: Api = None,
        *,
        delay_ms: int,
        times: int = 1,
        client_id: str | None = None,
        skip: int = 0,
        chance: float = 1.0,
    ) -> RequestFault:
        """Carry the next requests out at once and answer ``delay_ms`` milliseconds later."""
        return self._arm(api, RequestFault(answer_delay_ms=delay_ms), times, client_id, skip, chance)

    def delay_requests(
        self,
        api: Api = None,
        *,
        delay_ms: int,
        times: int = 1,
        client_id: str | None = None,
        skip: int = 0,
        chance: float = 1.0,
    ) -> RequestFault:
        """Carry the next requests out only after ``delay_ms`` milliseconds."""
        return self._arm(api, RequestFault(delay_ms=delay_ms), times, client_id, skip, chance)

    def throttle(
        self,
        api: Api = None,
        *,
        throttle_ms: int,
        times: int = 1,
        client_id: str | None = None,
        skip: int = 0,
        chance: float = 1.0,
    ) -> RequestFault:
        """Answer the next requests with a throttle time of ``throttle_ms`` milliseconds, and do not read meanwhile."""
        return self._arm(api, RequestFault(throttle_ms=throttle_ms), times, client_id, skip, chance)

    def close_on(
        self,
        api: Api = None,
        *,
        at: Close = "after",
        times: int = 1,
        client_id: str | None = None,
        skip: int = 0,
        chance: float = 1.0,
    ) -> RequestFault:
        """Close the connection of the next requests: ``"before"`` they are carried out, ``"after"`` that, without an
        answer, or ``"within"`` the answer, half of which is sent."""
        return self._arm(api, RequestFault(close=at), times, client_id, skip, chance)

    def _arm(
        self, api: Api, fault: RequestFault, times: int, client_id: str | None, skip: int, chance: float
    ) -> RequestFault:
        fault.api_key, fault.times, fault.client_id, fault.skip, fault.chance = (
            _key(api),
            times,
            client_id,
            skip,
            chance,
        )
        self.faults.arm(fault)
        return fault


def _key(api: Api) -> int | None:
    return None if api is None else api_key(api)
