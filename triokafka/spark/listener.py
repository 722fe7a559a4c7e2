"""Committing a query's offsets to a consumer group, for the tools that show lag, and telling exporters how far it is.

A query keeps its offsets in its checkpoint, where no tool of Kafka's sees them. The reader's own commits come one batch
late, and never for the last one; Spark tells listeners of every batch.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

import trio
from pyspark.sql.streaming.listener import StreamingQueryListener

import triokafka
from triokafka.client.config import AdminOptions
from triokafka.errors import KafkaError, UnknownMemberIdError
from triokafka.loop_thread import loop_thread
from triokafka.spark.client_settings import ClientSettings, HiddenValues
from triokafka.spark.kept import kept
from triokafka.spark.offsets import Offsets, format_offsets
from triokafka.spark.query_lag import Exporter, SourceLag, progress_lag

T = TypeVar("T")

_log: Final = logging.getLogger("triokafka.spark")

_GRACE: Final = 5.0  # seconds that closing may take after the deadline of a commit

Commit = Callable[[str, Offsets], None]
"""Commits offsets to a group: the group's name, and the offsets."""


class OffsetCommitListener(StreamingQueryListener):  # type: ignore[misc] # pyspark has no types here
    """Commits the end of every micro-batch to a consumer group, the last one too, and feeds exporters.

    Add it with ``spark.streams.addListener(listener)`` before the query starts. One listener can serve several queries.
    A batch is known to Spark's listeners a moment after it is done, so a query that has just ended may still be
    committing.

    Args:
        group_id: the group; nobody may be a member of it. None commits nothing, for the exporters alone.
        topics: only sources that read one of these topics, and of them only these; None for all.
        description: only sources whose description in the progress contains this text; None for all.
        queries: only queries of these names or ids; None for all.
        exporters: are given the lag of each of these sources after each batch.
        timeout_ms: how long a commit may take. Spark's listeners wait for each other meanwhile, its queries do not.
        options: of the client: ``bootstrap_servers`` and others of `AdminOptions`. Not shown in the repr.

    Raises:
        ConfigurationError: an option is unknown, or cannot be used.
    """

    def __init__(
        self,
        group_id: str | None,
        *,
        topics: Collection[str] | None = None,
        description: str | None = None,
        queries: Collection[str] | None = None,
        exporters: Iterable[Exporter] = (),
        timeout_ms: float = 10_000,
        **options: Any,
    ) -> None:
        super().__init__()
        AdminOptions.parse(options)  # a slip of the pen would be a warning for each batch
        self.group_id = group_id
        self._topics = None if topics is None else frozenset(topics)
        self._description = description
        self._queries = None if queries is None else frozenset(queries)
        self._exporters = tuple(exporters)
        self._commit: Commit = _GroupCommits(options, timeout_ms)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.group_id!r})"

    def onQueryStarted(self, event: Any) -> None:
        """Spark tells that a query has started: nothing is known of its offsets yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Spark tells of a micro-batch. What fails here is only logged: no query may end because of it."""
        try:
            self.take(event.progress)
        except Exception:
            _log.exception("the offsets of a micro-batch were not committed to group %r", self.group_id)

    def onQueryIdle(self, event: Any) -> None:
        """Spark tells that a query had nothing to do: its offsets are where they were."""

    def onQueryTerminated(self, event: Any) -> None:
        """Spark tells that a query has ended; it told of its last batch before. Exporters forget the query."""
        for exporter in self._exporters:
            forget = getattr(exporter, "forget", None)
            if forget is not None:
                forget(str(event.id))

    def take(self, progress: Mapping[str, Any]) -> None:
        """Commit the offsets of one progress, and hand the lag to the exporters."""
        if self._queries is not None and self._queries.isdisjoint((progress["name"], str(progress["id"]))):
            return
        committed: dict[Any, int] = {}
        for found in progress_lag(progress):
            if not self._is_meant(found):
                continue
            for one, offset in found.end.items():
                if self._topics is None or one.topic in self._topics:
                    # Of several sources of one partition the one that is behind: a group is never ahead of the query.
                    committed[one] = min(offset, committed.get(one, offset))
            for exporter in self._exporters:
                self._export(exporter, found)
        if committed and self.group_id is not None:
            self._commit(self.group_id, committed)

    def _export(self, exporter: Exporter, found: SourceLag) -> None:
        """What fails in one keeps nothing from the others, nor from the group."""
        try:
            exporter(found)
        except Exception:
            _log.exception("the exporter %r failed", exporter)

    def _is_meant(self, found: SourceLag) -> bool:
        if self._description is not None and self._description not in found.description:
            return False
        return self._topics is None or not self._topics.isdisjoint(found.topics)


class _GroupCommits:
    """Commits with one client, whose options no repr shows."""

    def __init__(self, options: Mapping[str, Any], timeout_ms: float) -> None:
        self._options = HiddenValues(options)
        self._timeout_ms = timeout_ms

    def __call__(self, group_id: str, offsets: Offsets) -> None:
        commit_to_group(self._options, group_id, offsets, self._timeout_ms)


def commit_to_group(options: Mapping[str, Any], group_id: str, offsets: Offsets, timeout_ms: float) -> bool:
    """Commit offsets to a group that nobody is a member of, and tell whether that worked. A failure is only logged.

    Waits at most ``timeout_ms``. ``options`` are a client's; the client is kept for the next call.
    """

    async def commit(admin: triokafka.AdminClient) -> None:
        await admin.alter_group_offsets(group_id, offsets, timeout_ms=timeout_ms)

    try:
        ask_admin(options, commit, timeout_ms)
    except (KafkaError, trio.TooSlowError, ExceptionGroup) as failed:
        failures = failed.exceptions if isinstance(failed, ExceptionGroup) else (failed,)
        # Of many partitions that fail for one reason it is told once.
        said = "; ".join(dict.fromkeys(_why(one) or f"no answer within {timeout_ms / 1000:.0f} s" for one in failures))
        _log.warning("offsets %s were not committed to group %r: %s", format_offsets(offsets), group_id, said)
        return False
    return True


def _why(failure: Exception) -> str:
    """A sentence; the client's own is for members of the group."""
    if isinstance(failure, UnknownMemberIdError):
        return "it has members, and only they may commit to it: name a group that no consumer uses"
    return str(failure)


def ask_admin(
    options: Mapping[str, Any], work: Callable[[triokafka.AdminClient], Awaitable[T]], timeout_ms: float
) -> T:
    """Have ``work`` use the client of these options, which is kept for the next call, and wait for what it returns.

    Raises:
        trio.TooSlowError: it took longer than ``timeout_ms`` and a while: ``work`` has a deadline of its own.
    """
    key = ("commits", ClientSettings(str(options.get("bootstrap_servers")), options).key)

    def make() -> triokafka.AdminClient:
        return triokafka.AdminClient(**{"client_id": "triokafka-spark", **options})

    async def use() -> T:
        # The client's own deadline has a better sentence. This one holds whatever else may hang.
        with trio.fail_after(timeout_ms / 1000 + _GRACE):
            async with kept().shared(key, make) as admin:
                return await work(admin)

    return loop_thread().call(use)
