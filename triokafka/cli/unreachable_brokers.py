"""Messages of a command while no broker has responded, and its error when it gives up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import click

from triokafka.errors import AuthenticationError, KafkaError, KafkaTimeoutError
from triokafka.hooks import Hooks
from triokafka.structs import Node

T = TypeVar("T")

_IN_CONTEXT: Final = "triokafka.reaching"
SILENCE: Final = 1.0
"""Seconds without a response after which a command prints what it is trying."""


class Reaching(Hooks):
    """Records whether any broker has responded. Passed to a client as ``hooks=``.

    ``names`` and ``limits`` are the options that name the brokers and limit the time.
    """

    def __init__(
        self, bootstrap: str, timeout_ms: float, *, names: str = "--bootstrap-server", limits: str = "--broker-timeout"
    ) -> None:
        self.answered = False
        self._names = names
        self._limits = limits
        self._bootstrap = bootstrap
        self._timeout = timeout_ms / 1000
        self._problem = ""

    def on_connect(self, node: Node, address: str, seconds: float, error: Exception | None) -> None:
        """Record the outcome of a connection attempt."""
        if error is None:
            self.answered = True  # the handshake includes a response
        else:
            self._problem = str(error).rstrip(".")

    async def report(self) -> None:
        """After a second without a response, print what the command is trying."""
        import trio

        await trio.sleep(min(SILENCE, self._timeout))
        if not self.answered and self._timeout > SILENCE:
            left = self._timeout - SILENCE
            click.echo(f"triokafka: {self._why()}; trying for another {left:g} s ({self._limits})", err=True)

    async def watch(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` while `report` runs; a failure becomes `error` if no broker has responded yet."""
        import trio

        failure: Exception | None = None
        results: list[T] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.report)
            try:
                results.append(await work())
            except Exception as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is None:
            return results[0]
        raise self.failure(failure)  # unwrapped, not in the nursery's group

    def failure(self, error: Exception) -> Exception:
        """Return the error to raise for a client's error: "no broker has answered" if that is the cause.

        A refusal by TLS or SASL says that a broker is there. An error that no retry helps, such as an impossible
        topic name, needs no broker.
        """
        if self.answered or _is_refusal(error):
            return error
        is_ours = error.split(_may_pass)[1] is None if isinstance(error, ExceptionGroup) else _may_pass(error)
        return self.error() if is_ours else error

    def error(self) -> KafkaError:
        """Return the error of a command that gives up because no broker has responded."""
        return KafkaTimeoutError(
            f"no broker has responded within {self._timeout:g} s: {self._why()}."
            f" Is a broker running there? {self._names} names another one"
        )

    def _why(self) -> str:
        return self._problem or f"{self._bootstrap} has not responded yet"


def hooked(
    options: dict[str, Any], timeout_ms: float, *, names: str = "--bootstrap-server", limits: str = "--broker-timeout"
) -> Reaching:
    """Add a `Reaching` to the options of a client, and return it."""
    servers = options.get("bootstrap_servers") or options.get("bootstrap_controllers", "")
    shown = servers if isinstance(servers, str) else ",".join(map(str, servers))
    reaching = Reaching(shown, timeout_ms, names=names, limits=limits)
    options["hooks"] = reaching
    return reaching


def keep(reaching: Reaching) -> None:
    """Let `raise_without_brokers` find the object while the current command runs."""
    click.get_current_context().meta[_IN_CONTEXT] = reaching


def raise_without_brokers(error: Exception) -> None:
    """Raise the error of a command that no broker has answered, if that is why something failed.

    Commands call it before they report the failure of one item and go on with the next.
    """
    context = click.get_current_context(silent=True)
    reaching = None if context is None else context.meta.get(_IN_CONTEXT)
    if isinstance(reaching, Reaching) and (instead := reaching.failure(error)) is not error:
        raise instead from error


def _may_pass(error: BaseException) -> bool:
    """Whether the client would try again: no broker can be reached, or none answers in time."""
    return isinstance(error, KafkaError) and error.retriable


def _is_refusal(error: BaseException) -> bool:
    """Whether a client's error, or each of a group, is about TLS or SASL."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_refusal(one) for one in error.exceptions)
    return isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError)
