"""`Mirror`: one flow of records and positions from a source cluster to a target cluster."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.client.producer.producer import Producer
from triokafka.mirror.acl_replication import AclReplication
from triokafka.mirror.checkpoints import GroupCheckpoints
from triokafka.mirror.cluster_side import ClusterSide
from triokafka.mirror.copier import Copier
from triokafka.mirror.flow_state import FlowState
from triokafka.mirror.heartbeats import write_heartbeat
from triokafka.mirror.offset_syncs import write_offset_syncs
from triokafka.mirror.options import MirrorOptions
from triokafka.mirror.state_topics import StateTopics
from triokafka.mirror.stored_positions import MirrorPositionsError
from triokafka.mirror.topic_replication import TopicReplication
from triokafka.trio_context import require_trio
from triokafka.world import World
from triokafka.world.system import RealWorld

logger = logging.getLogger(__name__)

_FOR_GOOD: Final = (
    errors.AuthenticationError,
    errors.AuthorizationError,
    errors.ConfigurationError,
    MirrorPositionsError,
    errors.ProducerFencedError,
    errors.UnsupportedVersionError,
)
"""Errors that a new attempt does not mend."""
_STATUS_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """How a flow is doing."""

    partitions: int
    records: int
    """Copied since the start, repeated ones included."""
    bytes: int
    lag: int
    """Offsets of the source that are not in the target yet."""
    lost: int
    """Offsets that the source deleted before they were mirrored."""
    truncated: int
    """Mirrored offsets that the source lost, in an unclean leader election for example. The target keeps them."""
    checkpoints: int
    left_out: dict[str, str]
    """Topics that cannot be mirrored, with the reason."""
    failure: str
    """Why the last attempt ended, or why a cluster cannot be reached; empty while all is well."""


class Mirror:
    """One flow: ``await Mirror(options).run()`` copies until it is cancelled.

    Records keep partition, order, key, value, headers and timestamp. At least once, or exactly once with
    ``options.exactly_once``. Progress is in the target cluster, so that any process can continue; the source is only
    read, except for the topic with offset syncs (``options.offset_syncs``).
    """

    def __init__(self, options: MirrorOptions, *, world: World | None = None) -> None:
        self._options = options
        self._world = world if world is not None else RealWorld()
        self._state = FlowState(options.offset_lag_max)
        self._backoff = Backoff(0.1, 10.0)
        self._failure = ""
        self._sessions = 0
        self._refreshing = trio.Lock()
        self._ended: MirrorStatus | None = None
        self._source = ClusterSide(options.source_alias, options.source, self._world)
        self._target = ClusterSide(options.target_alias, options.target, self._world)
        self._topics = TopicReplication(options, self._source, self._target, self._world)
        self._state_topics = StateTopics(options, self._source, self._target)
        self._acls = AclReplication(self._source, self._target)
        self._checkpoints: GroupCheckpoints | None = None

    async def run(self, *, until_caught_up: bool = False) -> None:
        """Copy until cancelled; with ``until_caught_up``, until everything is copied that the source has now.

        Failures of a cluster are logged and tried again without limit, with a pause of 0.1 to 10 seconds. A cancelled
        call has stored its progress up to the last commit interval; with ``exactly_once`` it aborts the transaction.

        Raises:
            AuthenticationError, AuthorizationError: a cluster refuses the client.
            ConfigurationError: an option is wrong, or both clusters are one and its topics would be copied without end.
            ProducerFencedError: another process runs the same flow and shard with ``exactly_once``.
            MirrorPositionsError: the stored progress is damaged, or of a newer version.
            UnsupportedVersionError: a cluster is too old.
        """
        require_trio("Mirror.run()", asyncio="", blocking="")
        try:
            async with (
                self._source,
                self._target,
                self._target.producer() as to_target,
                self._source.producer() as to_source,
            ):
                await self._run(to_target, to_source, until_caught_up)
        except BaseExceptionGroup as group:
            raise _only(group) from None

    async def _run(self, to_target: Producer, to_source: Producer, until_caught_up: bool) -> None:
        options = self._options
        self._ended = None
        checkpoints = self._checkpoints = GroupCheckpoints(options, self._state, self._source, self._target, to_target)
        syncs_to = to_source if options.offset_syncs == "source" else to_target
        await self._until_done(self._prepare)
        if until_caught_up:
            await self._until_done(self._finish_at_end)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._repeat, self._refresh, options.refresh_interval_ms)
            if options.sync_topic_acls:
                nursery.start_soon(self._repeat, self._copy_acls, options.acl_interval_ms)
            if options.offset_syncs != "none":
                nursery.start_soon(self._repeat, lambda: self._write_syncs(syncs_to), options.commit_interval_ms)
            if options.checkpoints:
                nursery.start_soon(self._repeat, checkpoints.update, options.checkpoint_interval_ms)
            if options.heartbeats:
                nursery.start_soon(
                    self._repeat, lambda: self._write_heartbeat(to_target), options.heartbeat_interval_ms
                )
            await self._until_done(self._copy)
            nursery.cancel_scope.cancel()
        if options.checkpoints:
            await self._until_done(checkpoints.update)
        if options.offset_syncs != "none":
            await self._until_done(lambda: self._write_syncs(syncs_to))
        self._ended = await self.status()

    @property
    def problem(self) -> str:
        """Why a cluster cannot be reached now; empty while both can."""
        for side, what in ((self._source, "source"), (self._target, "target")):
            if side.problem:
                return f"{what}: {side.problem}"
        return ""

    async def status(self) -> MirrorStatus:
        """Return how the flow is doing. Asks the source for the ends of its logs; the lag is -1 if it does not say them
        within two seconds.

        After the end of `run` it is the status at the end.
        """
        if self._ended is not None:
            return self._ended
        flows = list(self._state.flows.values())
        lag = 0
        if flows:
            try:
                ends = await self._source.admin.list_offsets(
                    {flow.source: "latest" for flow in flows},
                    isolation_level=self._options.isolation_level,
                    timeout_ms=_STATUS_MS,
                )
                lag = sum(max(0, ends[flow.source].offset - flow.offsets.next_offset) for flow in flows)
            except errors.KafkaError:
                lag = -1
        return MirrorStatus(
            partitions=len(self._state.wanted),
            records=self._state.counts.records,
            bytes=self._state.counts.bytes,
            lag=lag,
            lost=self._state.counts.lost,
            truncated=self._state.counts.truncated,
            checkpoints=0 if self._checkpoints is None else self._checkpoints.written,
            left_out=dict(self._topics.failures),
            failure=self._failure or self.problem,
        )

    # ---------------------------------------------------------------- parts

    async def _prepare(self) -> None:
        """Create the internal topics, and look at the topics for the first time."""
        await self._topics.wanted_topics()  # which refuses a copy without end before any topic is created
        await self._state_topics.create()
        await self._state_topics.keep_compacted()
        await self._state_topics.look_for_losses()
        self._state.want(await self._topics.refresh())
        if self._options.sync_topic_acls:
            await self._copy_acls()

    async def _copy_acls(self) -> None:
        await self._acls.refresh(self._topics.remote)

    async def _copy(self) -> None:
        """Copy in one session. Every session but the first begins with a refresh of the topics, which may be new."""
        if self._sessions:
            await self._refresh()
        self._sessions += 1
        await Copier(self._options, self._world, self._state, self._source, self._target).run()

    async def _refresh(self) -> None:
        async with self._refreshing:
            for topic in await self._state_topics.create():
                logger.warning(
                    "topic %s was deleted: it is created again, with the state that this process holds", topic
                )
            lost = await self._state_topics.look_for_losses()
            if self._state_topics.positions in lost:
                self._state.store_all()
            if self._state_topics.checkpoints in lost and self._checkpoints is not None:
                self._checkpoints.write_all()
            self._state.want(await self._topics.refresh())

    async def _finish_at_end(self) -> None:
        wanted = self._state.wanted
        ends = await self._source.admin.list_offsets(
            dict.fromkeys(wanted, "latest"), isolation_level=self._options.isolation_level
        )
        self._state.finish_at({partition: ends[partition].offset for partition in wanted})

    async def _write_syncs(self, producer: Producer) -> None:
        await write_offset_syncs(producer, self._state_topics.syncs, self._state)

    async def _write_heartbeat(self, producer: Producer) -> None:
        await write_heartbeat(producer, self._options, self._world.wall_ms())

    # ---------------------------------------------------------------- attempts

    async def _repeat(self, work: Callable[[], Awaitable[None]], interval_ms: int) -> None:
        while True:
            await trio.sleep(interval_ms / 1000)
            await self._until_done(work)

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something until it succeeds. Raises what another attempt does not mend."""
        failures = 0
        while True:
            try:
                await work()
            except Exception as error:
                problems = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
                for problem in problems:
                    if not isinstance(problem, errors.KafkaError) or isinstance(problem, _FOR_GOOD):
                        raise
                failures += 1
                self._failure = str(problems[0])
                pause = self._backoff.delay(failures, 0.5)
                logger.warning("mirroring failed, next attempt in %.1f s: %s", pause, self._failure)
                await trio.sleep(pause)
            else:
                self._failure = ""
                return


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error of a nursery, or the group if there are several."""
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner
