"""Calls that make requests fail, or delay, lose or truncate responses.

Each call arms one fault (see `triokafka.broker_stub.faults.faults`) and returns it. It applies to the first ``times``
matching requests after ``skip`` others, each with probability ``chance``; with ``times=-1`` until
``broker.faults.disarm(fault)`` or ``reset``. Any thread may call them.

``api`` is a name (``"Produce"``) or a key, None for every API. The error for an unknown name suggests the nearest one.
"""

from __future__ import annotations

from triokafka.broker_stub.faults.faults import Close, Fault, Faults, RequestFault
from triokafka.broker_stub.faults.names import api_key, error_class
from triokafka.errors import BrokerResponseError

Api = int | str | None
Error = int | str | type[BrokerResponseError]


class FaultCalls:
    """Arms faults in ``faults``; a component of every handle of a broker or a cluster."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

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
        """Answer the next ``times`` matching requests or items with ``error`` without executing them.

        With ``topic``, ``partition`` or ``group`` only those items of a request fail; the broker executes the others.

        Args:
            error: Kafka's name (``"NOT_LEADER_OR_FOLLOWER"``), its code, or a class of `triokafka.errors`.
            after_append: for Produce: append the records, and still answer with the error.

        Raises:
            UnknownNameError: the API or the error does not exist.
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
        self._faults.arm(fault)
        return fault

    def drop_replies(
        self, api: Api = None, *, times: int = 1, client_id: str | None = None, skip: int = 0, chance: float = 1.0
    ) -> RequestFault:
        """Execute the next requests and never answer them; their connections stay open."""
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
        """Execute the next requests immediately and answer them ``delay_ms`` milliseconds later."""
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
        """Execute the next requests after ``delay_ms`` milliseconds."""
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
        """Answer the next requests with a throttle time of ``throttle_ms``; read no further requests meanwhile."""
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
        """Close the connection of the next requests.

        ``at`` is ``"before"`` execution, ``"after"`` execution and without a response, or ``"within"`` the response,
        half of which is sent.
        """
        return self._arm(api, RequestFault(close=at), times, client_id, skip, chance)

    def _arm(
        self, api: Api, fault: RequestFault, times: int, client_id: str | None, skip: int, chance: float
    ) -> RequestFault:
        fault.api_key, fault.times, fault.client_id = _key(api), times, client_id
        fault.skip, fault.chance = skip, chance
        self._faults.arm(fault)
        return fault


def _key(api: Api) -> int | None:
    return None if api is None else api_key(api)
