"""A node exports every declared metric in the text format of Prometheus, under the names that dashboards use."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.unit.broker_stub.api.node import batch, running_node
from tests.unit.broker_stub.api.test_group_handlers import commit_request, stable
from triokafka.broker_stub.metrics.declared import DECLARED
from triokafka.broker_stub.metrics.prometheus import as_prometheus_text, prometheus_names
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.broker_stub.request.client_quotas import QuotaKind
from triokafka.quota_precedence import USER
from triokafka.testing import running_broker

DASHBOARD = Path(__file__).parents[4] / "docs" / "grafana" / "triokafka.json"


async def exported() -> list[Sample]:
    """The samples of a node with a topic, traffic, quotas and a group."""
    async with running_node(group_initial_rebalance_delay_ms=0) as node:
        kinds = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST)
        node.broker.quotas.configure({((USER, None),): {kind.value: 1e9 for kind in kinds}})
        await node.create("t", partitions=2)
        await node.produce("t", batch(b"a", b"b", b"c"))
        await node.fetch("t", 0)
        await stable(node, "steady")
        await node.call(commit_request(node, 8), 8)
        return list(node.broker.metrics())


async def exported_by_node() -> list[Sample]:
    """The samples of a whole node that is its own quorum."""
    async with running_broker() as target:
        return list(target.broker.metrics())


async def test_every_declared_metric_is_exported_and_every_exported_one_is_declared() -> None:
    samples = [*await exported(), *await exported_by_node()]
    names = {sample.name for sample in samples}
    of_other_nodes = {
        name
        for name in DECLARED
        if name.startswith(("kafka.server:type=raft-channel-metrics", "kafka.server:type=ControllerServer"))
    } | {"kafka.server:type=FetcherLagMetrics,name=ConsumerLag"}
    of_damage = {f"triokafka:type=LogManager,name={name}" for name in ("StrayLogs", "DamagedLogs", "LostOffsets")}
    assert names - DECLARED.keys() == set()
    assert DECLARED.keys() - names - of_other_nodes - of_damage == set()
    for sample in samples:
        kind = DECLARED[sample.name].kind
        assert (sample.statistic == "") == (kind == "gauge"), sample


_LINE = re.compile(
    r"(?:# (?:HELP|TYPE) .*|"
    r'[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
    r'(?:,[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*")*\})? [-+0-9.e]+(?:[NnAaIiFf]+)?)'
)


async def test_every_line_has_the_form_that_prometheus_reads() -> None:
    """One label name with a hyphen makes Prometheus drop the whole page."""
    text = as_prometheus_text([*await exported(), *await exported_by_node()])
    assert re.search(r'^kafka_server_produce_byte_rate\{user="[^"]*",client_id="', text, re.MULTILINE)
    assert [line for line in text.splitlines() if not _LINE.fullmatch(line)] == []


async def test_groups_have_members_offsets_and_lag() -> None:
    samples = await exported()
    found = {
        (sample.name.removeprefix("kafka_exporter:type="), sample.tags.get("partition", "")): sample.value
        for sample in samples
        if sample.tags.get("consumergroup") == "g"
    }
    committed = found["consumergroup_current_offset", "0"]
    assert found["consumergroup_lag", "0"] == max(0, 3 - committed)
    assert found["consumergroup_lag_sum", ""] == found["consumergroup_lag", "0"]


async def test_traffic_is_counted_by_topic() -> None:
    text = as_prometheus_text(await exported()).splitlines()
    for line in (
        'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 3',
        'kafka_server_brokertopicmetrics_totalproducerequests_total{topic="t"} 1',
        'kafka_log_log_logendoffset{topic="t",partition="0"} 3',
        'kafka_cluster_partition_underreplicated{topic="t",partition="0"} 0',
        "kafka_server_kafkaserver_brokerstate 3",
        "# TYPE kafka_server_brokertopicmetrics_messagesin_total counter",
        "# TYPE kafka_server_replicamanager_leadercount gauge",
        "kafka_brokers 1",
        'kafka_topic_partitions{topic="t"} 2',
    ):
        assert line in text, line


def test_lines_of_one_name_are_together_after_help_and_type() -> None:
    name = "kafka.network:type=RequestMetrics,name=TotalTimeMs"
    samples = [
        Sample(name, {"request": request}, 1.5, statistic)
        for request in ("Produce", 'odd"\\\n')
        for statistic in ("Count", "0.5", "0.99")
    ]
    meaning = DECLARED[name].meaning
    flat = "kafka_network_requestmetrics_totaltimems"
    assert as_prometheus_text(samples).splitlines() == [
        f"# HELP {flat}_count {meaning}",
        f"# TYPE {flat}_count counter",
        f'{flat}_count{{request="Produce"}} 1.5',
        f'{flat}_count{{request="odd\\"\\\\\\n"}} 1.5',
        f"# HELP {flat} {meaning}",
        f"# TYPE {flat} gauge",
        f'{flat}{{request="Produce",quantile="0.50"}} 1.5',
        f'{flat}{{request="Produce",quantile="0.99"}} 1.5',
        f'{flat}{{request="odd\\"\\\\\\n",quantile="0.50"}} 1.5',
        f'{flat}{{request="odd\\"\\\\\\n",quantile="0.99"}} 1.5',
    ]


def every_name() -> set[str]:
    """The names of all declared metrics in the text."""
    names: set[str] = set()
    for name, declared in DECLARED.items():
        statistics = {"gauge": [""], "meter": ["Count"], "histogram": ["Count", "Sum", "Max", "0.5"]}[declared.kind]
        for statistic in statistics:
            names.update(prometheus_names(Sample(name, {}, 0, statistic)))
    return names


def test_dashboard_uses_only_exported_metrics() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions.append(board["templating"]["list"][1]["query"])
    used = {name for expression in expressions for name in re.findall(r"kafka_\w+", expression)}
    assert len(used) > 20
    assert used - every_name() == set()
