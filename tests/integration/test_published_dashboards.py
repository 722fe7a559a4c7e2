"""Published dashboards of other projects on a cluster of three nodes: the panels whose queries have data.

``tests/data/dashboard_metrics.json`` has the series that each query reads, with its label selectors.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import triokafka
from triokafka.broker_stub.metrics.prometheus import as_prometheus_text
from triokafka.client.admin.quotas import QuotaEntity
from triokafka.client.admin.types import NewTopic
from triokafka.testing import running_cluster

QUERIES: dict[str, list[list[str]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "dashboard_metrics.json").read_text(encoding="utf-8")
)
OF_OTHERS = ("jvm_", "container_", "kubelet_")
"""Metrics of the Java machine and of Kubernetes, which no broker exports."""


def labels_by_name(text: str) -> dict[str, set[str]]:
    """Return the metric names of a page, each with all its labels."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition(" ")[0].partition("{")
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', rest))
    return found


def has_data(wanted: str, found: dict[str, set[str]]) -> bool:
    name, _, labels = wanted.rstrip("}").partition("{")
    return name in found and set(labels.split(",")) - {""} <= found[name]


async def test_panels_of_published_dashboards_have_data() -> None:
    quotas = {"producer_byte_rate": 1e9, "consumer_byte_rate": 1e9, "request_percentage": 1000.0}
    async with running_cluster(nodes=3) as cluster:
        servers = cluster.bootstrap_servers
        async with triokafka.AdminClient(bootstrap_servers=servers) as admin:
            await admin.create_topics([NewTopic("orders", 3, 3)])
            await admin.alter_client_quotas({QuotaEntity.of(user=None): quotas})
        async with triokafka.Producer(bootstrap_servers=servers) as producer:
            for number in range(9):
                await (await producer.send("orders", b"tea", partition=number % 3))
        async with triokafka.Consumer(
            "orders", bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            seen = 0
            while seen < 9:
                seen += sum(map(len, (await consumer.poll(timeout_ms=1_000)).values()))
            await consumer.commit()
            found: dict[str, set[str]] = {}
            for broker in cluster.brokers:
                for name, labels in labels_by_name(as_prometheus_text(broker.broker.metrics())).items():
                    found.setdefault(name, set()).update(labels)

    for dashboard, queries in QUERIES.items():
        ours = [query for query in queries if not any(one.startswith(OF_OTHERS) for one in query)]
        without = [query for query in ours if not all(has_data(one, found) for one in query)]
        assert without == [], dashboard
