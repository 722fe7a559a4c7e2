"""Retries of the admin client: the attempts of each call, and the errors after which another one follows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import trio

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.client.admin.call_routing import GROUP, CallRouting, ControllerRoute
from triokafka.client.admin.types import Results
from triokafka.client.config import AdminOptions
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.message import Request, Response
from triokafka.structs import Node
from triokafka.world import World

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Response)

Round = Callable[[list[K], CallRouting], Awaitable[Mapping[K, V | Exception]]]
"""Does the given items once, in an attempt of the call; returns the outcome or the error of each."""

_FINAL: Final = (errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError)


class AdminRetries:
    """Repeats the calls of one admin client until they succeed or their time is over.

    With ``at_controllers`` the client is connected to the controllers (KIP-919), of which the active one answers.
    """

    def __init__(self, client: NetworkClient, options: AdminOptions, world: World) -> None:
        self.client = client
        self.world = world
        self._default_timeout_ms = options.default_api_timeout_ms
        self._request_timeout_ms = options.request_timeout_ms
        self.at_controllers = bool(options.bootstrap_controllers)
        self._route = ControllerRoute(self.at_controllers)
        self._backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)

    # ---------------------------------------------------------------- retries

    async def each(
        self,
        items: Iterable[K],
        do_round: Round[K, V],
        timeout_ms: float | None,
        *,
        final: tuple[type[errors.KafkaError], ...] = (),
    ) -> Results[K, V]:
        """Do the items, and retry those that failed with a retriable error, until all are done or the time is over.

        Errors of the ``final`` kinds are not retried. Nor is an unknown topic, which an administrator must see.
        """
        self.client.check_usable()
        pending = list(dict.fromkeys(items))
        done: dict[K, V] = {}
        failed: dict[K, Exception] = {}
        limit = self._default_timeout_ms if timeout_ms is None else timeout_ms
        give_up_at = self.world.now() + limit / 1000
        failures = 0
        whole: Exception | None = None
        call = CallRouting(self.client, self._route, self._request_timeout_ms)
        while pending:
            left_ms = max(1, round((give_up_at - self.world.now()) * 1000))
            outcomes: Mapping[K, V | Exception] = {}
            overall: Exception | None = None
            whole = None
            call.begin_attempt(left_ms)
            with trio.move_on_after(left_ms / 1000):
                try:
                    outcomes = await do_round(pending, call)
                    overall = errors.UnansweredItemError("the broker's answer does not mention this item")
                except errors.UnencodableValueError:
                    raise  # the argument is wrong, not the cluster
                except errors.KafkaError as error:
                    overall = whole = error
            if overall is None:
                overall = whole = errors.KafkaTimeoutError(f"not done within {limit:.0f} ms: {self._why_late(call)}")
            again: list[K] = []
            for item in pending:
                outcome = outcomes.get(item, overall)
                if not isinstance(outcome, Exception):
                    done[item] = outcome
                    failed.pop(item, None)
                    continue
                if _says_more(outcome, failed.get(item), call):
                    failed[item] = outcome
                if (
                    isinstance(outcome, errors.KafkaError)
                    and outcome.retriable
                    and not isinstance(outcome, _FINAL + final)
                ):
                    again.append(item)
            failures += 1
            delay = self._backoff.delay(failures, self.world.random.random())
            if self.world.now() + delay >= give_up_at:
                break
            pending = again
            if pending:
                await trio.sleep(delay)
        return Results(done, failed, whole if all(error is whole for error in failed.values()) else None)

    async def each_group(
        self,
        group_ids: Iterable[str],
        do_part: Callable[[Node, list[str], CallRouting], Awaitable[Mapping[str, V | Exception]]],
        timeout_ms: float | None,
        *,
        key_type: int = GROUP,
    ) -> Results[str, V]:
        """Do as `each`, with the groups of each coordinator in one part. ``key_type`` tells what the ids name."""

        async def do_round(items: list[str], call: CallRouting) -> Mapping[str, V | Exception]:
            return await call.at_coordinators(items, do_part, key_type=key_type)

        return await self.each(group_ids, do_round, timeout_ms)

    async def brokers(self, timeout_ms: float | None) -> list[Node]:
        """Return the brokers of the cluster."""

        async def ask(call: CallRouting) -> list[Node]:
            return list((await call.refresh_metadata()).nodes.values())

        return await self.once(ask, timeout_ms)

    async def change(
        self,
        items: Iterable[K],
        do_round: Round[K, V],
        timeout_ms: float | None,
        *,
        final: tuple[type[errors.KafkaError], ...] = (),
    ) -> dict[K, V]:
        """Do as `each`, for calls that change something: raise the failures after all items were tried."""
        return values_of(await self.each(items, do_round, timeout_ms, final=final))

    async def once(self, do: Callable[[CallRouting], Awaitable[V]], timeout_ms: float | None) -> V:
        """Do one operation, and retry it while it fails with a retriable error."""

        async def do_round(items: list[None], call: CallRouting) -> Mapping[None, V | Exception]:
            return {None: await do(call)}

        results: Results[None, V] = await self.each([None], do_round, timeout_ms)
        return results[None]

    async def ask_any(self, request: Request[R], what: str, timeout_ms: float | None) -> R:
        """Return the response of any broker to a request. Raises the error of the response; ``what`` is in its text."""

        async def ask(call: CallRouting) -> R:
            response = await call.to_any(request)
            self.check(getattr(response, "error_code"), what, getattr(response, "error_message", None))  # noqa: B009
            return response

        return await self.once(ask, timeout_ms)

    def countdown(self, timeout_ms: float | None) -> Callable[[], float]:
        """Return a function for the rest of a call's time limit, in milliseconds, for calls of several steps."""
        limit = self._default_timeout_ms if timeout_ms is None else timeout_ms
        ends_at = self.world.now() + limit / 1000
        return lambda: max(1.0, (ends_at - self.world.now()) * 1000)

    # ---------------------------------------------------------------- errors

    def _why_late(self, call: CallRouting) -> str:
        why = self.client.why_unreachable()
        if call.waited_for_controller:
            why += ". The request is for the active controller: check that a majority of the controllers runs"
        return why

    def error(self, code: int, item: object, message: str | None = None) -> errors.BrokerResponseError | None:
        """Return the error of one item, None when ``code`` is 0. Stale metadata is refreshed before the next try."""
        if not code:
            return None
        kind = errors.for_code(code)
        error = kind(f"{item}: {message or errors.in_words(kind)}")
        if message and isinstance(error, errors.InvalidRequestError):
            error.advice = ""  # which is to read that message
        if isinstance(error, errors.NotControllerError):
            self._route.unreachable = None
        if isinstance(error, errors.NotControllerError) or error.invalid_metadata:
            self.client.request_metadata_update()
        return error

    def check(self, code: int, item: object, message: str | None = None) -> None:
        """Raise the `error` of one item, if there is one."""
        error = self.error(code, item, message)
        if error is not None:
            raise error

    def group_error(
        self, code: int, group_id: str, message: str | None = None, *, part: object = None
    ) -> errors.BrokerResponseError | None:
        """Return the `error` of a group, or of some ``part`` of it. A coordinator that moved is looked up again."""
        item = f"group {group_id!r}" if part is None else f"group {group_id!r}, {part}"
        error = self.error(code, item, message)
        if isinstance(error, (errors.NotCoordinatorError, errors.CoordinatorNotAvailableError)):
            self.client.forget_coordinator(group_id, GROUP)
        return error


def _says_more(outcome: object, earlier: object, call: CallRouting) -> bool:
    """Whether the outcome of an attempt is reported instead of an earlier one.

    A timeout does not replace the reason of an earlier failure, unless that was a connection, and since then the
    request has reached a broker that waits for the active controller.
    """
    if not isinstance(outcome, errors.KafkaTimeoutError) or earlier is None:
        return True
    return call.waited_for_controller and not isinstance(earlier, errors.BrokerResponseError)


def values_of(results: Results[K, V]) -> dict[K, V]:
    """Return the values of all items, or raise the failures."""
    if results.errors:
        raise failure_of(results)
    return dict(results)


def failure_of(results: Results[Any, Any]) -> Exception:
    """Return the error of the failed item, or a group of several errors; ``outcomes`` has the results of all items."""
    # A request that failed as a whole is one error, however many items it had.
    distinct = list({id(error): error for error in results.errors.values()}.values())
    failure = distinct[0]
    if len(distinct) > 1:
        failure = ExceptionGroup(f"{len(results.errors)} of {len(results)} items failed", distinct)
    failure.outcomes = results  # type: ignore[attr-defined]
    return failure
