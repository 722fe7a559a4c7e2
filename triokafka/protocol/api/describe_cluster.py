"""DescribeCluster (API key 60): cluster id, controller and brokers (KIP-700).

Versions 0–2; flexible from 0. v1: brokers or controllers on request (KIP-919). v2: fenced brokers on request
(KIP-1073).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String


class DescribeClusterRequest(Request["DescribeClusterResponse"], api_key=60, versions="0-2", flexible="0+"):
    """Ask for the cluster."""

    include_cluster_authorized_operations: bool = fields.include_cluster_authorized_operations()
    endpoint_type: int = field(
        Int8,
        versions="1+",
        default=1,
        doc="Whose addresses to list: 1 brokers, 2 controllers.",
        errors=("UnsupportedEndpointTypeError", "MismatchedEndpointTypeError"),
    )
    include_fenced_brokers: bool = field(Boolean, versions="2+", doc="Whether to list brokers that are fenced.")


class DescribeClusterBroker(Struct):
    """A broker or controller and where to reach it."""

    broker_id: int = field(Int32, doc="The broker's id.")
    host: str = field(String, doc="The host to connect to.")
    port: int = field(Int32, doc="The port to connect to.")
    rack: str | None = fields.rack(nullable="0+")
    is_fenced: bool = field(Boolean, versions="2+", doc="Whether the broker is fenced.")


class DescribeClusterResponse(Response, api_key=60, versions="0-2", flexible="0+"):
    """The cluster."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code of the whole response; 0 means success.",
        errors=("ClusterAuthorizationFailedError", "UnsupportedEndpointTypeError", "MismatchedEndpointTypeError"),
    )
    error_message: str | None = fields.error_message(nullable="0+", default=None)
    endpoint_type: int = field(
        Int8,
        versions="1+",
        default=1,
        doc="Whose addresses are listed: 1 brokers, 2 controllers.",
    )
    cluster_id: str = field(String, doc="The cluster's id.")
    controller_id: int = field(
        Int32,
        default=-1,
        doc="The controller's id; under KRaft any broker that forwards to it; -1 for none.",
    )
    brokers: list[DescribeClusterBroker] = field(Array(DescribeClusterBroker), doc="The brokers or controllers.")
    cluster_authorized_operations: int = fields.cluster_authorized_operations()
