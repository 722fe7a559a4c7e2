"""The metadata of the cluster: records, images, deltas between images, and snapshots.

Both roles of a node use it to follow the metadata log. The package makes no decisions about changes, and does not
import the controller.
"""

from triokafka.broker_stub.metadata.delta import LocalReplicaChanges, MetadataDelta
from triokafka.broker_stub.metadata.image import BrokerImage, EndpointImage, MetadataImage, PartitionImage, TopicImage

__all__ = [
    "BrokerImage",
    "EndpointImage",
    "LocalReplicaChanges",
    "MetadataDelta",
    "MetadataImage",
    "PartitionImage",
    "TopicImage",
]
