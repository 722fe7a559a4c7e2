"""Claims about a broker's metrics (`broker-log/A37`, `Z35`, `security-metrics-tools/KM-05`, `KM-14`)."""

from __future__ import annotations

from tests.unit.broker_stub.api.node import batch, running_node
from triokafka.broker_stub.metrics import as_prometheus_text
from triokafka.protocol.api.metadata import MetadataRequest


async def test_requests_are_counted_by_api_version_and_error() -> None:
    """A fetch is one of a consumer or of a follower, too."""
    async with running_node() as node:
        await node.create("t")
        await node.produce("t", batch(b"v"), version=9)
        await node.produce("t", batch(b"v"), version=8)
        await node.produce("nowhere", batch(b"v"))
        await node.call(node.fetch_request("t", [0]), 11)
        await node.call(node.fetch_request("t", [0], replica_id=5), 11)
        await node.call(MetadataRequest(topics=[]), 9)
        text = as_prometheus_text(node.broker.metrics())
    for line in (
        'kafka_network_requestmetrics_requestspersec_count{request="Produce",version="9"} 2',
        'kafka_network_requestmetrics_requestspersec_count{request="Produce",version="8"} 1',
        'kafka_network_requestmetrics_errorspersec_count{request="Produce",error="NONE"} 2',
        'kafka_network_requestmetrics_errorspersec_count{request="Produce",error="UnknownTopicOrPartitionError"} 1',
        'kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 2',
        'kafka_network_requestmetrics_totaltimems_count{request="FetchConsumer"} 1',
        'kafka_network_requestmetrics_totaltimems_count{request="FetchFollower"} 1',
        'kafka_network_requestmetrics_totaltimems_count{request="Heartbeat"} 0',
        'kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"} 0',
        "kafka_network_requestchannel_requestqueuesize 0",
        "kafka_server_replicamanager_partitioncount 1",
    ):
        assert line in text.splitlines()


async def test_idle_share_of_handlers_is_near_one_where_nothing_happens() -> None:
    """And never outside of 0 to 1 (`broker-log/B02`)."""
    async with running_node() as node:
        assert 0 <= node.broker.idle_share <= 1
        await node.call(MetadataRequest(topics=[]), 9)
        assert 0 <= node.broker.idle_share <= 1
