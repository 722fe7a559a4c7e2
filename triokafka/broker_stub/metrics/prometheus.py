"""The text format of Prometheus, with the names that the JMX exporter gives Kafka's metrics by its rules for Kafka.

``kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec`` is ``kafka_server_brokertopicmetrics_bytesin_total``; a
histogram has ``…_count``, ``…_sum``, ``…_max`` and quantiles. Metrics of kafka_exporter have its names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final

import trio

from triokafka.broker_stub.metrics.declared import DECLARED
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.world import World

_TURN: Final = 0.002
"""Seconds of work between two checkpoints."""
_PORTION: Final = 8
"""Samples between two looks at the clock. A few need a pass over all partitions or groups."""
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9_]")
_QUANTILES: Final = {"0.5": "0.50"}
_EXPORTER: Final = "kafka_exporter:type="
_STRIMZI: Final = {
    "raft-metrics": "raftmetrics",
    "raft-channel-metrics": "raftchannelmetrics",
    "broker-metadata-metrics": "brokermetadatametrics",
}
"""What the rules of Strimzi make of types with hyphens."""


def as_prometheus_text(samples: Iterable[Sample]) -> str:
    """Format samples, each family with its meaning and its type."""
    families = _Families()
    families.add(samples)
    return "".join(families.texts())


async def prometheus_text(samples: Iterable[Sample], world: World) -> str:
    """As `as_prometheus_text`, for tens of thousands of samples: with a checkpoint after every two milliseconds of
    work, so that other tasks can run.

    ``samples`` may be an iterator that computes them: samples that are not read yet may change in between.
    """
    families, rest, texts = _Families(), iter(samples), list[str]()

    def steps() -> Iterator[None]:
        while portion := tuple(islice(rest, _PORTION)):
            families.add(portion)
            yield
        for text in families.texts():
            texts.append(text)
            yield

    turn_began = world.now()
    for _ in steps():
        if world.now() - turn_began >= _TURN:
            await trio.lowlevel.checkpoint()
            turn_began = world.now()
    return "".join(texts)


class _Families:
    """The lines of the text by family, to which samples are added in any order."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}
        self._known: dict[tuple[str, str], list[tuple[str, list[str]]]] = {}
        self._tags: Mapping[str, str] | None = None
        self._labels = ""

    def add(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            # A node with thousands of partitions has tens of thousands of samples: names are made once.
            found = self._known.get((sample.name, sample.statistic))
            if found is None:
                names = prometheus_names(sample)
                found = [(name, self._families.setdefault(name, [_head(name, sample)])) for name in names]
                self._known[sample.name, sample.statistic] = found
            if sample.statistic:
                text = _labels(sample)
            else:
                if sample.tags is not self._tags:  # samples of one partition follow each other, with the same tags
                    self._tags, self._labels = sample.tags, _labels(sample)
                text = self._labels
            for name, lines in found:
                lines.append(f"{name}{text} {sample.value:.10g}\n")

    def texts(self) -> Iterator[str]:
        """Yield the lines of each family as one text."""
        return map("".join, self._families.values())


def prometheus_names(sample: Sample) -> list[str]:
    """Return the names under which a sample is exported: one, or two where published rules disagree."""
    if sample.name.startswith(_EXPORTER):
        return [f"kafka_{sample.name.removeprefix(_EXPORTER)}"]
    domain, _, rest = sample.name.partition(":")
    words = [domain, *(part.partition("=")[2] for part in rest.split(","))]
    if sample.statistic == "Count" and words[-1].endswith("PerSec"):
        words[-1] = words[-1].removesuffix("PerSec")
        words.append("total")
    elif sample.statistic.isalpha():
        words.append(sample.statistic)
    names = [_flat(words)]
    for of_kafka, of_strimzi in _STRIMZI.items():
        if of_kafka in sample.name:
            names.append(names[0].replace(_flat([of_kafka]), of_strimzi))
    if sample.name.endswith("current-state"):
        names.append(f"{names[0]}_info")
    if words[-1].endswith("Percent") and not sample.statistic:
        names.append(_flat([*words[:-1], words[-1].removesuffix("Percent"), "percent"]))
    return names


def _flat(words: list[str]) -> str:
    return re.sub(r"[^a-z0-9]+", "_", "_".join(words).lower())


def _head(name: str, sample: Sample) -> str:
    declared = DECLARED.get(sample.name)
    kind = "counter" if sample.statistic in ("Count", "Sum") or name.endswith("_total") else "gauge"
    meaning = "" if declared is None else f"# HELP {name} {declared.meaning}\n"
    return f"{meaning}# TYPE {name} {kind}\n"


def _labels(sample: Sample) -> str:
    labels = {_label_name(key): value for key, value in sample.tags.items()}
    if sample.statistic and not sample.statistic.isalpha():
        labels["quantile"] = _QUANTILES.get(sample.statistic, sample.statistic)
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


@lru_cache(maxsize=1_000)
def _label_name(tag: str) -> str:
    return _NO_LABEL.sub("_", tag)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
