"""The lag of a streaming query behind its topics, from its progress: the connector's three metrics, and exporters.

Spark does not let Python sources add metrics to their progress, so the lag is computed from the offsets in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.bounds import Offsets
from triokafka.spark.planning.offsets_json import parse_offsets
from triokafka.structs import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The lag of one source of one query after one micro-batch.

    Args:
        query_id: the query's id, which survives restarts.
        query_name: the query's name; None for an unnamed query.
        batch_id: the number of the micro-batch.
        description: Spark's description of the source.
        end: the next offset that the query will read, by partition.
        latest: the end offsets of the partitions when the batch was planned; empty before Spark 4.2, which does not
            report them.
    """

    query_id: str
    query_name: str | None
    batch_id: int
    description: str
    end: Offsets
    latest: Offsets

    @property
    def topics(self) -> tuple[str, ...]:
        """The source's topics, sorted by name."""
        return tuple(sorted({one.topic for one in self.end}))

    @property
    def behind(self) -> dict[TopicPartition, int]:
        """The number of unread offsets by partition."""
        return {one: offset - self.end.get(one, 0) for one, offset in self.latest.items()}

    def metrics(self) -> dict[str, str]:
        """Return ``min``, ``max`` and ``avgOffsetsBehindLatest`` as the connector does; empty when unknown."""
        behind = self.behind.values()
        if not behind:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
        }


Exporter = Callable[[SourceLag], None]
"""Receives the lag of every source after every micro-batch."""


def lag(query: Any) -> list[SourceLag]:
    """Return the lag of a running query by its last progress, one entry per source of Kafka offsets. Asks no broker.

    Empty before the first progress.
    """
    progress = query.lastProgress
    return [] if progress is None else progress_lag(progress)


def progress_lag(progress: Mapping[str, Any]) -> list[SourceLag]:
    """Return the lag from a progress, or from its parsed JSON: ``event.progress`` of a listener."""
    found = []
    for source in progress["sources"]:
        end = kafka_offsets(source["endOffset"])
        if end is not None:
            found.append(
                SourceLag(
                    query_id=str(progress["id"]),
                    query_name=progress["name"] or None,
                    batch_id=int(progress["batchId"]),
                    description=str(source["description"]),
                    end=end,
                    latest=kafka_offsets(source["latestOffset"]) or {},
                )
            )
    return found


def kafka_offsets(text: Any) -> dict[TopicPartition, int] | None:
    """Return the offsets in a progress; None for a source that is not Kafka."""
    try:
        return parse_offsets(text) or None
    except ConfigurationError:
        return None


class LogExporter:
    """Logs one line per source after each micro-batch."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logger if logger is not None else logging.getLogger("triokafka.spark.lag")
        self._level = level

    def __call__(self, found: SourceLag) -> None:
        """Log the line."""
        numbers = " ".join(f"{name}={value}" for name, value in found.metrics().items())
        self._logger.log(
            self._level,
            "query %s batch %d, %s: %s",
            found.query_name or found.query_id,
            found.batch_id,
            ", ".join(found.topics),
            numbers or "the latest offsets are not known",
        )


class PrometheusExporter:
    """Holds the latest numbers and formats them for Prometheus; needs no further package.

    Serve `text` under a path of your own, or write it to a file that a node exporter collects.
    """

    _HELP: Final = {
        "min": "Lag in offsets of the least lagging partition of a source",
        "max": "Lag in offsets of the most lagging partition of a source",
        "avg": "Average lag in offsets of the partitions of a source",
    }

    def __init__(self, prefix: str = "triokafka_spark") -> None:
        self._prefix = prefix
        self._found: dict[tuple[str, tuple[str, ...]], SourceLag] = {}

    def __call__(self, found: SourceLag) -> None:
        """Replace the numbers of the query's earlier batches."""
        # By batch: under a pattern a source's topics change, and nothing else identifies the source.
        others = {
            key: one
            for key, one in self._found.items()
            if one.query_id != found.query_id or one.batch_id == found.batch_id
        }
        # Replaced as a whole, because another thread reads it.
        self._found = {**others, (found.query_id, found.topics): found}

    def forget(self, query_id: str) -> None:
        """Drop a query that has ended."""
        self._found = {key: found for key, found in self._found.items() if key[0] != query_id}

    def text(self) -> str:
        """Return the numbers as one page."""
        lines = []
        sources = list(self._found.values())
        for kind, what in self._HELP.items():
            name = f"{self._prefix}_{kind}_offsets_behind_latest"
            samples = [
                f"{name}{{{_labels(one)}}} {one.metrics()[f'{kind}OffsetsBehindLatest']}"
                for one in sources
                if one.latest
            ]
            if samples:
                lines += [f"# HELP {name} {what}", f"# TYPE {name} gauge", *samples]
        name = f"{self._prefix}_offsets_behind_latest"
        samples = [
            f'{name}{{{_labels(one)},topic="{_escaped(topic)}",partition="{number}"}} {behind}'
            for one in sources
            for (topic, number), behind in sorted(one.behind.items())
        ]
        if samples:
            lines += [f"# HELP {name} Lag in offsets of a partition", f"# TYPE {name} gauge", *samples]
        return "".join(f"{line}\n" for line in lines)


def _labels(found: SourceLag) -> str:
    values = {"query_id": found.query_id, "query": found.query_name or "", "topics": ",".join(found.topics)}
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
