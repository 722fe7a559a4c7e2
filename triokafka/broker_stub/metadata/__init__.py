"""The metadata of the cluster: records, the image that they add up to, deltas between images, snapshots.

Both roles of a node follow the metadata log with it. Nothing here decides about a change, and nothing here imports
the controller.
"""

from triokafka.broker_stub.metadata.delta import LocalReplicaChanges, MetadataDelta
from triokafka.broker_stub.metadata.image import (
    BrokerImage,
    EndpointImage,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)

__all__ = [
    "BrokerImage",
    "EndpointImage",
    "LocalReplicaChanges",
    "MetadataDelta",
    "MetadataImage",
    "PartitionImage",
    "ResourceType",
    "TopicImage",
]
