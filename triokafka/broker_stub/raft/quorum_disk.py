"""Writes of a quorum node, in threads. A message leaves the node once the state behind it is on the disk."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

import trio

from triokafka.broker_stub.raft.election_state import ElectionState, QuorumStateStore
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.raft_core import RaftCore
from triokafka.broker_stub.raft.raft_log_interface import RaftLog, SnapshotWriter
from triokafka.broker_stub.raft.state_transitions import COMPLAINT_PAUSE
from triokafka.errors import KafkaError, KafkaStorageError
from triokafka.world import World

logger = logging.getLogger(__name__)

_SAVE_AGAIN: Final = 1.0
"""Seconds after a failure to store the election state."""


class QuorumDisk:
    """Stores the election state, syncs the log, and finishes received snapshots, as the state machine requires.

    ``save_failure`` is the reason why the election state could not be stored; None once it is.

    Args:
        now: the quorum's clock.
        on_written: called after each write, so that its effects are carried out.
        on_not_saved: called after each failure to store the election state, with it and whether it is the first.
    """

    def __init__(
        self,
        world: World,
        core: RaftCore,
        log: RaftLog,
        store: QuorumStateStore,
        *,
        now: Callable[[], float],
        on_written: Callable[[], None],
        on_not_saved: Callable[[KafkaStorageError, bool], None],
    ) -> None:
        self.save_failure: KafkaStorageError | None = None
        self._world = world
        self._core = core
        self._log = log
        self._store = store
        self._now = now
        self._on_written = on_written
        self._on_not_saved = on_not_saved
        self._requested = trio.Event()
        self._flush_begun_at = -math.inf
        self._complained_at = -math.inf

    def request(self) -> None:
        """Let `run` look for work."""
        self._requested.set()

    @property
    def has_work(self) -> bool:
        """Whether something must be written."""
        core, log = self._core, self._log
        return not core.halted and (
            core.unsaved is not None or core.unfinished_snapshot is not None or log.flushed_offset < log.end_offset
        )

    async def run(self) -> None:
        """Carry out the requested writes, until cancelled."""
        while True:
            await self._requested.wait()
            self._requested = trio.Event()
            await trio.sleep(self._linger())
            await self.write()
            if self.save_failure is not None:
                await trio.sleep(_SAVE_AGAIN)
                self._requested.set()

    def _linger(self) -> float:
        """Return how long a leader of other voters collects records before it syncs them, in seconds.

        The first append after a pause is not delayed, and a follower's answer never is.
        """
        quorum = self._core.quorum
        if not isinstance(quorum.state, Leader) or len(quorum.voters) == 1 or self._core.unsaved is not None:
            return 0.0
        return max(0.0, self._flush_begun_at + self._core.config.append_linger_ms / 1000 - self._now())

    async def write(self) -> None:
        """Store what must be durable, up to the first failure to store the election state.

        Shielded from cancellation: the result of a write that has begun must be known.
        """
        with trio.CancelScope(shield=True):
            while self.has_work:
                state, writer = self._core.unsaved, self._core.unfinished_snapshot
                if state is not None:
                    await self._save(state)
                    if self.save_failure is not None:
                        return
                elif writer is not None:
                    await self._finish(writer)
                else:
                    await self._flush()
                self._on_written()

    async def _save(self, state: ElectionState) -> None:
        history = self._core.quorum.history
        kraft_version, voter_ids = history.kraft_version, history.voters.ids
        try:
            await self._world.run_in_thread(
                lambda: self._store.write(state, kraft_version=kraft_version, voter_ids=voter_ids)
            )
        except (OSError, KafkaError) as error:
            # A vote that might be on disk, or not: until it is, nothing leaves this node, which gives no other one.
            self._not_saved(KafkaStorageError(f"the quorum state cannot be written: {error}"))
        else:
            self.save_failure = None
            self._core.election_saved(state)

    def _not_saved(self, failure: KafkaStorageError) -> None:
        """Take no part in the quorum until the election state is stored."""
        now = self._now()
        self._core.save_failed()
        if now - self._complained_at >= COMPLAINT_PAUSE:
            self._complained_at = now
            logger.error(
                "Node %d cannot store its election state and takes no part in the metadata quorum: %s",
                self._core.config.node_id,
                failure,
            )
        is_first, self.save_failure = self.save_failure is None, failure
        self._on_not_saved(failure, is_first)

    async def _flush(self) -> None:
        self._flush_begun_at = self._now()
        try:
            job = self._log.begin_flush()
            if job is None:
                return
            await self._world.run_in_thread(job.run)
            self._log.flushed(job)
        except (OSError, KafkaError) as error:
            failure = KafkaStorageError(f"the metadata log could not be written: {error}")
            self._core.write_failed(failure, self._now())
        else:
            self._core.flushed(self._now())

    async def _finish(self, writer: SnapshotWriter) -> None:
        def check_and_finish() -> None:
            writer.check()  # the log that it replaces may be the only whole one
            writer.finish()

        try:
            await self._world.run_in_thread(check_and_finish)
        except (OSError, KafkaError) as error:
            node_id = self._core.config.node_id
            logger.error("Node %d: cannot store the snapshot %s: %s", node_id, writer.snapshot_id, error)
            self._core.snapshot_failed(writer, self._now())
        else:
            self._core.snapshot_finished(writer, self._now())
