"""The pytest plugin: ``triokafka_broker``, a broker for any test.

The broker runs in a thread of its own with its own Trio run, so that blocking, asyncio and Trio tests alike can use it,
with any client. Nothing is imported until a test asks for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import trio

_START_SECONDS = 30


class RunningBroker:
    """A broker in a thread: ``bootstrap_servers`` is its address, HOST:PORT."""

    bootstrap_servers: str

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope: trio.CancelScope | None = None
        self._thread = threading.Thread(target=self._run, name="triokafka broker for tests", daemon=True)

    def start(self) -> None:
        """Start it and return once it accepts connections. Raises what the broker raised."""
        self._thread.start()
        if not self._ready.wait(_START_SECONDS):
            raise TimeoutError(f"the broker did not come up within {_START_SECONDS} seconds")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End it and wait until its thread is gone."""
        if self._token is not None and self._scope is not None and self._thread.is_alive():
            self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(_START_SECONDS)

    def _run(self) -> None:
        import trio

        try:
            trio.run(self._serve)
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        import trio

        from triokafka.testing.brokers import running_broker

        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            async with running_broker() as broker:
                self.bootstrap_servers = broker.bootstrap_servers
                self._ready.set()
                await trio.sleep_forever()


@pytest.fixture(scope="session")
def _triokafka_session_broker() -> Iterator[RunningBroker]:
    broker = RunningBroker()
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def triokafka_broker(_triokafka_session_broker: RunningBroker) -> RunningBroker:
    """A running broker, one for the whole session; use topics and groups of your own in each test."""
    return _triokafka_session_broker
