"""Flushing logs in worker threads: those that ask for it immediately (``flush.messages``), others when they are due.

A log has at most one sync at a time that it asked for; what is appended meanwhile goes with the next one, so that the
slower the disk, the more records share a sync. Nothing here blocks the event loop but the writing of indexes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import trio

from triokafka.broker_stub.log.disk_guard import out_of_files
from triokafka.errors import KafkaError
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.log.log_flusher import LogFlusher

logger = logging.getLogger(__name__)

_SYNCS_AT_ONCE: Final = 8  # a disk takes many requests at once
_RETRY_SECONDS: Final = 1


class FlushScheduler:
    """Flushes the logs of a broker in worker threads.

    Args:
        flushed: called when a log's recovery point has moved.
        failed: called when a log could not be synced.
    """

    def __init__(
        self,
        world: World,
        *,
        flushed: Callable[[LogFlusher], None],
        failed: Callable[[LogFlusher, OSError], None],
    ) -> None:
        self._world = world
        self._flushed = flushed
        self._failed = failed
        self._wanted: dict[LogFlusher, None] = {}  # in the order in which they asked
        self._busy: set[LogFlusher] = set()
        self._wake = trio.Event()
        self._running = False

    def request(self, log: LogFlusher) -> bool:
        """Have ``log`` synced soon; False when `run` does not run."""
        if self._running:
            self._wanted[log] = None
            self._wake.set()
        return self._running

    async def run(self) -> None:
        """Serve requests until cancelled. What is wanted then is left to the next flush of the log."""
        self._running = True
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    await self._wake.wait()
                    self._wake = trio.Event()
                    for log in [log for log in self._wanted if log not in self._busy]:
                        if len(self._busy) >= _SYNCS_AT_ONCE:
                            break
                        del self._wanted[log]
                        self._busy.add(log)
                        nursery.start_soon(self._serve, log)
        finally:
            self._running = False
            self._wanted.clear()
            self._busy.clear()

    async def _serve(self, log: LogFlusher) -> None:
        await self._flush(log, sealed_only=False)
        if log.usable and log.flush_wanted and log not in self._wanted:  # no room, or no more files: there may be soon
            await trio.sleep(_RETRY_SECONDS)
            self._wanted[log] = None
        self._busy.discard(log)
        if self._wanted:  # maybe the same log again, for what was appended meanwhile
            self._wake.set()

    async def flush(self, logs: Iterable[LogFlusher], *, sealed_only: bool = False) -> None:
        """Return when all of ``logs`` were synced. Failures are logged; `failed` hears of those of the disk."""
        left = list(logs)
        left.reverse()

        async def work() -> None:
            while left:
                await self._flush(left.pop(), sealed_only=sealed_only)

        async with trio.open_nursery() as nursery:
            for _ in range(min(_SYNCS_AT_ONCE, len(left))):
                nursery.start_soon(work)

    async def _flush(self, log: LogFlusher, *, sealed_only: bool) -> None:
        try:
            job = log.begin_flush(sealed_only=sealed_only)
        except KafkaError as error:
            logger.error("%s", error)
            return
        if job is None:
            return
        try:
            await self._world.run_in_thread(job.run)
        except OSError as error:
            if out_of_files(error):
                logger.error("%s could not be flushed: %s", log.topic_partition, error)
                log.put_off(job)
            else:
                self._failed(log, error)
        else:
            log.flushed(job)
            self._flushed(log)
