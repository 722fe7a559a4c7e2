"""DescribeCluster (API key 60)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String


class DescribeClusterRequest(Request["DescribeClusterResponse"], api_key=60, versions="0-2", flexible="0+"):
    """Ask."""

    include_cluster_authorized_operations: bool = field(Boolean, doc="Include cluster authorized operations.")
    endpoint_type: int = field(Int8, versions="1+", default=1, doc="Endpoint type.")
    include_fenced_brokers: bool = field(Boolean, versions="2+", doc="Include fenced brokers.")


class DescribeClusterBroker(Struct):
    """One item of ``brokers``."""

    broker_id: int = field(Int32, doc="Broker id.")
    host: str = field(String, doc="Host.")
    port: int = field(Int32, doc="Port.")
    rack: str | None = field(String, nullable="0+", default=None, doc="Rack.")
    is_fenced: bool = field(Boolean, versions="2+", doc="Is fenced.")


class DescribeClusterResponse(Response, api_key=60, versions="0-2", flexible="0+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, doc="Throttle time ms.")
    error_code: int = field(Int16, doc="Error code.")
    error_message: str | None = field(String, nullable="0+", default=None, doc="Error message.")
    endpoint_type: int = field(Int8, versions="1+", default=1, doc="Endpoint type.")
    cluster_id: str = field(String, doc="Cluster id.")
    controller_id: int = field(Int32, default=-1, doc="Controller id.")
    brokers: list[DescribeClusterBroker] = field(Array(DescribeClusterBroker), doc="Brokers.")
    cluster_authorized_operations: int = field(Int32, default=-(2**31), doc="Cluster authorized operations.")
