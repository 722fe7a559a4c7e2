"""How far a streaming query is behind its topics, from its progress: the connector's three numbers, and exporters.

Spark gives Python sources no way to put metrics into their progress, so they are worked out from the offsets in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.spark.offsets import Offsets, parse_offsets
from triokafka.structs import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceLag:
    """One source of one query after one micro-batch.

    Args:
        query_id: the same over restarts of the query.
        query_name: None for a query without a name.
        batch_id: the micro-batch's number.
        description: what Spark calls the source.
        end: the next offset that the query will read, by partition.
        latest: where the partitions ended when the batch was planned; empty before Spark 4.2, which does not tell.
    """

    query_id: str
    query_name: str | None
    batch_id: int
    description: str
    end: Offsets
    latest: Offsets

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads, by name."""
        return tuple(sorted({one.topic for one in self.end}))

    @property
    def behind(self) -> dict[TopicPartition, int]:
        """How many offsets of each partition are still to be read."""
        return {one: offset - self.end.get(one, 0) for one, offset in self.latest.items()}

    def metrics(self) -> dict[str, str]:
        """``min``, ``max`` and ``avgOffsetsBehindLatest`` as the connector gives them; empty when it is not known."""
        behind = self.behind.values()
        if not behind:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
        }


Exporter = Callable[[SourceLag], None]
"""Is given the lag of every source after every micro-batch."""


def lag(query: Any) -> list[SourceLag]:
    """How far a running query is behind, by its last progress: one for each source of Kafka offsets. Asks no broker.

    Empty before the first progress.
    """
    progress = query.lastProgress
    return [] if progress is None else progress_lag(progress)


def progress_lag(progress: Mapping[str, Any]) -> list[SourceLag]:
    """The same from a progress, or from its JSON when parsed: ``event.progress`` of a listener."""
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
    """The offsets in an offset of a progress; None when it is no offset of Kafka partitions."""
    try:
        return parse_offsets(text) or None
    except ConfigurationError:
        return None


class LogExporter:
    """Writes one line to a logger for each source after each micro-batch."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logger if logger is not None else logging.getLogger("triokafka.spark.lag")
        self._level = level

    def __call__(self, found: SourceLag) -> None:
        """Write the line."""
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
    """Keeps the last numbers, and gives them in the text format that Prometheus reads; needs no package.

    Serve `text` under a path of your own, or write it to a file that a node exporter collects.
    """

    _HELP: Final = {
        "min": "Offsets that the partition of a source that is least behind lacks",
        "max": "Offsets that the partition of a source that is furthest behind lacks",
        "avg": "Offsets that the partitions of a source lack on average",
    }

    def __init__(self, prefix: str = "triokafka_spark") -> None:
        self._prefix = prefix
        self._found: dict[tuple[str, tuple[str, ...]], SourceLag] = {}

    def __call__(self, found: SourceLag) -> None:
        """Keep the numbers, in place of those of the query's batches before."""
        # By batch: with a pattern the topics of a source change, and nothing else tells it from others.
        others = {
            key: one
            for key, one in self._found.items()
            if one.query_id != found.query_id or one.batch_id == found.batch_id
        }
        # Replaced as a whole: it is read in another thread.
        self._found = {**others, (found.query_id, found.topics): found}

    def forget(self, query_id: str) -> None:
        """Leave out a query from now on, because it has ended."""
        self._found = {key: found for key, found in self._found.items() if key[0] != query_id}

    def text(self) -> str:
        """The numbers as one page."""
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
            lines += [f"# HELP {name} Offsets that a partition is behind its end", f"# TYPE {name} gauge", *samples]
        return "".join(f"{line}\n" for line in lines)


def _labels(found: SourceLag) -> str:
    values = {"query_id": found.query_id, "query": found.query_name or "", "topics": ",".join(found.topics)}
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
