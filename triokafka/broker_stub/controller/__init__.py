"""The controller: the cluster's metadata as records, as an image, and the one queue that changes it.

`Controller` is the entry. `MetadataImage` is what everyone reads, `MetadataDelta` what changed; the controls
(``replication``, ``configuration``, ``cluster``, ``producer_ids``) decide and are pure. Messages of clients are
imported where they are answered: a broker starts without any of them.
"""

from triokafka.broker_stub.controller.controller import Controller
from triokafka.broker_stub.controller.delta import LocalReplicaChanges, MetadataDelta
from triokafka.broker_stub.controller.image import (
    BrokerImage,
    EndpointImage,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from triokafka.broker_stub.controller.producer_ids import ProducerIdBlock

__all__ = [
    "BrokerImage",
    "Controller",
    "EndpointImage",
    "LocalReplicaChanges",
    "MetadataDelta",
    "MetadataImage",
    "PartitionImage",
    "ProducerIdBlock",
    "ResourceType",
    "TopicImage",
]
