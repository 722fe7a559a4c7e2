"""Flushing logs in worker threads: immediately on request (``flush.messages``), or when they are due.

A log has at most one requested sync at a time. Records appended meanwhile share the next sync, so a slower disk syncs
more records at a time. On the event loop, the scheduler only writes indexes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import trio

from triokafka.broker_stub.log.log_disk_errors import out_of_files
from triokafka.errors import KafkaError
from triokafka.metrics.durations import Durations
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.log.log_flusher import LogFlusher

logger = logging.getLogger(__name__)

_SYNCS_AT_ONCE: Final = 8  # disks process several requests in parallel
_RETRY_SECONDS: Final = 1


class FlushThreads:
    """Flushes the logs of a broker in worker threads.

    Args:
        flushed: called when a log's recovery point has moved.
        failed: called when a log could not be synced.

    ``durations`` has the times of the syncs that succeeded.
    """

    def __init__(
        self,
        world: World,
        *,
        flushed: Callable[[LogFlusher], None],
        failed: Callable[[LogFlusher, OSError], None],
    ) -> None:
        self.durations = Durations()
        self._world = world
        self._flushed = flushed
        self._failed = failed
        self._wanted: dict[LogFlusher, None] = {}  # in the order of their requests
        self._busy: set[LogFlusher] = set()
        self._wake = trio.Event()
        self._running = False

    def request(self, log: LogFlusher) -> bool:
        """Schedule a sync of ``log``; return False while `run` is not running."""
        if self._running:
            self._wanted[log] = None
            self._wake.set()
        return self._running

    async def run(self) -> None:
        """Serve requests until cancelled. The next flush of a log covers the requests left at that time."""
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
        if log.usable and log.flush_wanted and log not in self._wanted:  # a temporary error: try again
            await trio.sleep(_RETRY_SECONDS)
            self._wanted[log] = None
        self._busy.discard(log)
        if self._wanted:  # maybe the same log, for records appended meanwhile
            self._wake.set()

    async def flush(self, logs: Iterable[LogFlusher], *, sealed_only: bool = False) -> None:
        """Sync ``logs`` and wait for it. Failures are logged; ``failed`` is called with disk failures."""
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
        began = self._world.now()
        try:
            await self._world.run_in_thread(job.run)
        except OSError as error:
            if out_of_files(error):
                logger.error(
                    "%s: the flush failed and is retried: %s. Raise the limit of open files (ulimit -n).",
                    log.topic_partition,
                    error,
                )
                log.put_off(job)
            else:
                self._failed(log, error)
        else:
            self.durations.add(self._world.now() - began)
            log.flushed(job)
            self._flushed(log)
