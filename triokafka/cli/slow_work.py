"""Work that blocks, in a thread: a schema registry's answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from triokafka.cli.unreachable_brokers import SILENCE

if TYPE_CHECKING:
    from triokafka.cli.record_codecs import RegistryOptions

T = TypeVar("T")


class SlowWork:
    """Runs blocking functions in threads, one at a time, and prints once what a slow one waits for.

    Cancelling abandons the thread, so that Ctrl-C ends the run at once. The thread ends with its function.
    """

    def __init__(self, note: str) -> None:
        self._note = note
        self._began_at: float | None = None

    @staticmethod
    def of_registry(registry: RegistryOptions) -> SlowWork:
        """Return the work that waits for a schema registry."""
        return SlowWork(f"waiting for the schema registry {registry.url} …")

    @property
    def is_running(self) -> bool:
        """Whether a function runs now."""
        return self._began_at is not None

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call ``function`` in a thread and return its result."""
        import trio

        self._began_at = trio.current_time()
        try:
            return await trio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)
        finally:
            self._began_at = None

    async def report(self) -> None:
        """Print the note when a function needs more than a second; cancel it at the end of the run."""
        import trio

        while True:
            await trio.sleep(SILENCE)
            if self._began_at is not None and trio.current_time() - self._began_at >= SILENCE:
                click.echo(f"triokafka: {self._note}", err=True)
                return
