"""The text format of Prometheus, with the names that the JMX exporter gives Kafka's metrics by its rules for Kafka.

``kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec`` is ``kafka_server_brokertopicmetrics_bytesin_total``; a
histogram has ``…_count``, ``…_sum``, ``…_max`` and quantiles. Metrics of kafka_exporter have its names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from triokafka.broker_stub.metrics.declared import DECLARED
from triokafka.broker_stub.metrics.sample import Sample

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
    families: dict[str, list[str]] = {}
    known: dict[tuple[str, str], list[tuple[str, list[str]]]] = {}
    tags: Mapping[str, str] | None = None
    labels = ""
    for sample in samples:
        # A node with thousands of partitions has tens of thousands of samples: names are made once.
        found = known.get((sample.name, sample.statistic))
        if found is None:
            names = prometheus_names(sample)
            found = [(name, families.setdefault(name, [_head(name, sample)])) for name in names]
            known[sample.name, sample.statistic] = found
        if sample.statistic:
            text = _labels(sample)
        else:
            if sample.tags is not tags:  # samples of one partition follow each other, with the same tags
                tags, labels = sample.tags, _labels(sample)
            text = labels
        for name, lines in found:
            lines.append(f"{name}{text} {sample.value:.10g}\n")
    return "".join(line for lines in families.values() for line in lines)


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
