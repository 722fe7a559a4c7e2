"""Commits of a query's offsets to a consumer group, for tools that show lag; and the feed of lag exporters.

A query keeps its offsets in its checkpoint, which Kafka's tools do not see. The reader's own commits are one batch late
and omit the last batch; Spark notifies listeners of every batch.
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
from triokafka.spark.client_cache import client_cache
from triokafka.spark.listener.query_lag import Exporter, SourceLag, progress_lag
from triokafka.spark.planning.bounds import Offsets
from triokafka.spark.planning.client_settings import ClientSettings, HiddenValues
from triokafka.spark.planning.offsets_json import format_offsets

T = TypeVar("T")

_log: Final = logging.getLogger("triokafka.spark")

_GRACE: Final = 5.0  # seconds for closing after the deadline of a commit

Commit = Callable[[str, Offsets], None]
"""Commits offsets to a group: group id and offsets."""


class OffsetCommitListener(StreamingQueryListener):  # type: ignore[misc] # pyspark has no types here
    """Commits the end of every micro-batch, including the last, to a consumer group, and feeds exporters.

    Add it with ``spark.streams.addListener(listener)`` before the query starts. One listener can serve several queries.
    Spark notifies listeners shortly after a batch, so a commit may still run when a query has just ended.

    Args:
        group_id: the group, which must have no members. None commits nothing and only feeds exporters.
        topics: limits commits and lag to sources that read one of these topics, and to these topics; None for all.
        description: limits them to sources whose description in the progress contains this text; None for all.
        queries: limits them to queries with these names or ids; None for all.
        exporters: receive the lag of each of these sources after each batch.
        timeout_ms: the time limit of a commit. It delays Spark's other listeners, but no queries.
        options: client options: ``bootstrap_servers`` and others of `AdminOptions`. Omitted from the repr.

    Raises:
        ConfigurationError: an option is unknown or invalid.
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
        AdminOptions.parse(options)  # fail here: later an invalid option would be a warning per batch
        self.group_id = group_id
        self._topics = None if topics is None else frozenset(topics)
        self._description = description
        self._queries = None if queries is None else frozenset(queries)
        self._exporters = tuple(exporters)
        self._commit: Commit = _GroupCommits(options, timeout_ms)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.group_id!r})"

    def onQueryStarted(self, event: Any) -> None:
        """Handle the start of a query; does nothing, because its offsets are unknown."""

    def onQueryProgress(self, event: Any) -> None:
        """Handle a completed micro-batch. Errors are only logged: they must not end a query."""
        try:
            self.take(event.progress)
        except Exception:
            _log.exception("group %r: the offsets of a micro-batch were not committed", self.group_id)

    def onQueryIdle(self, event: Any) -> None:
        """Handle an idle query; does nothing, because its offsets are unchanged."""

    def onQueryTerminated(self, event: Any) -> None:
        """Handle the end of a query, after its last progress. Exporters drop the query."""
        for exporter in self._exporters:
            forget = getattr(exporter, "forget", None)
            if forget is not None:
                forget(str(event.id))

    def take(self, progress: Mapping[str, Any]) -> None:
        """Commit the offsets of one progress, and pass the lag to the exporters."""
        if self._queries is not None and self._queries.isdisjoint((progress["name"], str(progress["id"]))):
            return
        committed: dict[Any, int] = {}
        for found in progress_lag(progress):
            if not self._is_meant(found):
                continue
            for one, offset in found.end.items():
                if self._topics is None or one.topic in self._topics:
                    # Of several sources of one partition the lowest: a group is never ahead of the query.
                    committed[one] = min(offset, committed.get(one, offset))
            for exporter in self._exporters:
                self._export(exporter, found)
        if committed and self.group_id is not None:
            self._commit(self.group_id, committed)

    def _export(self, exporter: Exporter, found: SourceLag) -> None:
        """Call one exporter; its errors affect neither other exporters nor the commit."""
        try:
            exporter(found)
        except Exception:
            _log.exception("exporter %r failed", exporter)

    def _is_meant(self, found: SourceLag) -> bool:
        if self._description is not None and self._description not in found.description:
            return False
        return self._topics is None or not self._topics.isdisjoint(found.topics)


class _GroupCommits:
    """Commits through one client, whose options no repr shows."""

    def __init__(self, options: Mapping[str, Any], timeout_ms: float) -> None:
        self._options = HiddenValues(options)
        self._timeout_ms = timeout_ms

    def __call__(self, group_id: str, offsets: Offsets) -> None:
        commit_to_group(self._options, group_id, offsets, self._timeout_ms)


def commit_to_group(options: Mapping[str, Any], group_id: str, offsets: Offsets, timeout_ms: float) -> bool:
    """Commit offsets to a group without members; returns whether that worked. A failure is only logged.

    Waits at most ``timeout_ms``. ``options`` are client options; the client is cached for the next call.
    """

    async def commit(admin: triokafka.AdminClient) -> None:
        await admin.alter_group_offsets(group_id, offsets, timeout_ms=timeout_ms)

    try:
        ask_admin(options, commit, timeout_ms)
    except (KafkaError, trio.TooSlowError, ExceptionGroup) as failed:
        failures = failed.exceptions if isinstance(failed, ExceptionGroup) else (failed,)
        # A reason that many partitions share is logged once.
        said = "; ".join(dict.fromkeys(_why(one) or f"no answer within {timeout_ms / 1000:.0f} s" for one in failures))
        _log.warning("offsets %s were not committed to group %r: %s", format_offsets(offsets), group_id, said)
        return False
    return True


def _why(failure: Exception) -> str:
    """Return the error message; the client's own message for UnknownMemberIdError addresses group members."""
    if isinstance(failure, UnknownMemberIdError):
        return "it has members, and only they may commit to it: name a group that no consumer uses"
    return str(failure)


def ask_admin(
    options: Mapping[str, Any], work: Callable[[triokafka.AdminClient], Awaitable[T]], timeout_ms: float
) -> T:
    """Run ``work`` with the client of these options, which is cached for the next call, and return its result.

    Raises:
        trio.TooSlowError: ``work``, which has a deadline of its own, took longer than ``timeout_ms`` and a grace time.
    """
    key = ("commits", ClientSettings(str(options.get("bootstrap_servers")), options).key)

    def make() -> triokafka.AdminClient:
        return triokafka.AdminClient(**{"client_id": "triokafka-spark", **options})

    async def use() -> T:
        # The client's own deadline has a better message. This deadline covers everything else.
        with trio.fail_after(timeout_ms / 1000 + _GRACE):
            async with client_cache().shared(key, make) as admin:
                return await work(admin)

    return loop_thread().call(use)
