"""The catalogues compared with the MBeans of Apache Kafka 4.3: each is there, or absent with a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

from docs.absent_metrics import ABSENT
from triokafka.broker_stub.metrics.declared import DECLARED
from triokafka.client.metrics.catalogue import GROUPS

KAFKA: dict[str, dict[str, list[str]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "kafka_jmx.json").read_text(encoding="utf-8")
)
_OF_KIND = {
    "gauge": {"Value"},
    "meter": {"Count"},
    "histogram": {"Count", "Max", *(f"{p}thPercentile" for p in ("50", "75", "95", "98", "99", "999"))},
}
_PREFIXES = {"producer": "kafka.producer", "consumer": "kafka.consumer", "admin-client": "kafka.admin.client"}


def of_kafka() -> set[tuple[str, str, str]]:
    """MBean, tags, attribute."""
    return {
        (mbean, tags, attribute)
        for mbean, by_tags in KAFKA.items()
        for tags, attributes in by_tags.items()
        for attribute in attributes
    }


def is_here(mbean: str, tags: str, attribute: str) -> bool:
    domain, _, rest = mbean.partition(":")
    group = rest.removeprefix("type=")
    if domain in _PREFIXES.values():
        wanted = set(tags.split(",")) - {"client-id"}
        return any(
            set(own) == wanted and attribute in names
            for full, (own, names) in GROUPS.items()
            if full.split(" ")[0] == group
        )
    declared = DECLARED.get(mbean)
    if declared is not None:
        return attribute in _OF_KIND[declared.kind]
    return f"{mbean},name={attribute}" in DECLARED  # of Kafka's own library: the attribute is the name


def why_absent(mbean: str, attribute: str) -> list[int]:
    return [
        number
        for number, (of_mbean, of_attribute, _) in enumerate(ABSENT)
        if re.fullmatch(of_mbean, mbean) and re.fullmatch(of_attribute, attribute)
    ]


def test_every_metric_of_kafka_is_here_or_absent_with_a_reason() -> None:
    unexplained = {
        f"{mbean} {attribute}"
        for mbean, tags, attribute in of_kafka()
        if not is_here(mbean, tags, attribute) and not why_absent(mbean, attribute)
    }
    assert not unexplained, "\n".join(sorted(unexplained))


def test_every_reason_is_needed() -> None:
    used = {
        number
        for mbean, tags, attribute in of_kafka()
        if not is_here(mbean, tags, attribute)
        for number in why_absent(mbean, attribute)
    }
    assert [ABSENT[number] for number in range(len(ABSENT)) if number not in used] == []


def test_own_names_are_kafkas() -> None:
    """Except those of this package, of kafka_exporter, and of data that Kafka shows only when it exists."""
    theirs = {mbean for mbean in KAFKA} | {f"{mbean},name={name}" for mbean, _, name in of_kafka()}
    unknown = {
        name
        for name in DECLARED
        if name not in theirs and not name.startswith(("triokafka:", "kafka_exporter:", "process:"))
    }
    of_quotas = ("byte-rate", "throttle-time")  # of clients that have one
    assert unknown == {
        "kafka.network:type=SocketServer,name=MemoryPoolDepletedWaiting",
        "kafka.server:type=DelayedDeleteRecordsMetrics,name=ExpiresPerSec",
        "kafka.server:type=FetcherLagMetrics,name=ConsumerLag",
        *(f"kafka.server:type={kind},name={name}" for kind in ("Produce", "Fetch") for name in of_quotas),
        "kafka.server:type=Request,name=request-time",
        "kafka.server:type=Request,name=throttle-time",
    }
    for group, (_, names) in GROUPS.items():
        kind = next((kind for kind in _PREFIXES if group.startswith(kind)), None)
        if kind is not None:
            mbean = f"{_PREFIXES[kind]}:type={group.split(' ')[0]}"
            known = {name for attributes in KAFKA[mbean].values() for name in attributes}
            assert set(names) <= known, group
