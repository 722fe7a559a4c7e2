"""The cluster as its controllers describe it, for a client that connects to them instead of brokers (KIP-919)."""

from __future__ import annotations

from typing import Final

from triokafka.errors import for_code, in_words
from triokafka.protocol.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from triokafka.protocol.api.metadata import MetadataResponse, MetadataResponseBroker

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""The endpoint types of DescribeCluster."""
FIRST_WITH_CONTROLLERS: Final = 1
"""The first version of DescribeCluster with an endpoint type."""


def controllers_request() -> DescribeClusterRequest:
    """Return the request for the controllers and the active one of them."""
    return DescribeClusterRequest(endpoint_type=CONTROLLERS)


def controllers_as_metadata(response: DescribeClusterResponse) -> MetadataResponse:
    """Return metadata in which the controllers are the nodes of the cluster, and which has no topics.

    Raises:
        MismatchedEndpointTypeError: a broker has answered.
        ClusterAuthorizationFailedError: the client may not see the controllers.
    """
    if response.error_code:
        kind = for_code(response.error_code)
        raise kind(response.error_message or in_words(kind))
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            for node in response.brokers
        ],
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        topics=[],
    )
