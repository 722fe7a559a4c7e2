"""DescribeCluster (API key 60): the brokers, the controller id and the cluster id.

Versions 0-2. v1: endpoint type, brokers or controllers (KIP-919). v2: fenced brokers on request.
"""

from __future__ import annotations

from typing import Final

from triokafka import errors
from triokafka.broker_stub.api.brokers import controller_id, endpoint_of
from triokafka.broker_stub.authorizer import denial, or_cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from triokafka.security.acl import AclOperation, ResourceType

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


@handles(DescribeClusterRequest, versions=range(0, 3), accesses=[or_cluster(AclOperation.DESCRIBE)])
async def describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Describe the cluster from the metadata image."""
    if context.is_on_controller:
        return _describe_controllers(request, context)
    if request.endpoint_type == _CONTROLLERS:
        raise errors.MismatchedEndpointTypeError("this listener serves brokers, not controllers")
    if request.endpoint_type != _BROKERS:
        raise errors.UnsupportedEndpointTypeError(f"endpoint type {request.endpoint_type} is unknown: use 1 (brokers)")
    image = context.metadata.image
    response = DescribeClusterResponse(
        endpoint_type=_BROKERS,
        cluster_id=context.services.cluster_id(),
        controller_id=controller_id(image, context.node_id),
        brokers=[
            DescribeClusterBroker(
                broker_id=node.broker_id,
                host=host,
                port=port,
                rack=node.rack,
                is_fenced=context.version >= 2 and node.fenced,
            )
            for node in sorted(image.brokers.values(), key=lambda node: node.broker_id)
            if not node.fenced or request.include_fenced_brokers
            for host, port in endpoint_of(node, context.listener)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.cluster_operations()
    return response


def _describe_controllers(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Describe the controllers: the voters of the quorum with their addresses, and the leader (KIP-919)."""
    if context.denied_for_cluster(AclOperation.ALTER):  # stricter than a broker of Kafka
        raise denial(ResourceType.CLUSTER)(f"{context.principal} may not alter the cluster")
    if request.endpoint_type == _BROKERS:
        raise errors.MismatchedEndpointTypeError("this listener serves controllers, not brokers")
    if request.endpoint_type != _CONTROLLERS:
        raise errors.UnsupportedEndpointTypeError(
            f"endpoint type {request.endpoint_type} is unknown: use 2 (controllers)"
        )
    quorum = context.controller.quorum()
    leader = quorum.leader.leader_id
    registered = context.metadata.image.controllers
    found: dict[int, tuple[str, int]] = {}
    for voter in quorum.voters:
        node = voter.node(context.listener)
        if node is not None:
            found[voter.node_id] = (node.host, node.port)
    for controller in registered.values():
        for endpoint in controller.end_points:
            if endpoint.name == context.listener:
                found[controller.controller_id] = (endpoint.host, endpoint.port)
    response = DescribeClusterResponse(
        endpoint_type=_CONTROLLERS,
        cluster_id=context.services.cluster_id(),
        controller_id=-1 if leader is None else leader,
        brokers=[
            DescribeClusterBroker(broker_id=number, host=host, port=port)
            for number, (host, port) in sorted(found.items())
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.cluster_operations()
    return response
