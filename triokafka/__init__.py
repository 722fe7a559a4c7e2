"""Kafka for Trio: a client SDK, a broker and a Spark reader.

Names load when they are first used, so that importing the package is quick and brings in no optional dependency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from triokafka import errors, structs, testing
    from triokafka.assignors import PartitionAssignor
    from triokafka.client.admin import AdminClient, ConfigResource, NewTopic
    from triokafka.client.consumer import Consumer
    from triokafka.client.consumer.listener import ConsumerInterceptor, ConsumerRebalanceListener
    from triokafka.client.deliveries import Deliveries, Delivery, OffsetRange
    from triokafka.client.producer.interceptors import ProducerInterceptor, ProducerRecord
    from triokafka.client.producer.partitioner import Partitioner
    from triokafka.client.producer.producer import Producer
    from triokafka.client.producer.stream import PartitionStream
    from triokafka.client.reader import RangeReader, read_topic
    from triokafka.errors import KafkaError
    from triokafka.hooks import Hooks
    from triokafka.records import ConsumerRecord
    from triokafka.structs import Node, OffsetAndMetadata, OffsetAndTimestamp, RecordMetadata, TopicPartition
    from triokafka.world import RealWorld, World

    __version__: str

_HOMES: Final[dict[str, str]] = {
    "AdminClient": "triokafka.client.admin",
    "ConfigResource": "triokafka.client.admin",
    "Consumer": "triokafka.client.consumer",
    "ConsumerInterceptor": "triokafka.client.consumer.listener",
    "ConsumerRebalanceListener": "triokafka.client.consumer.listener",
    "ConsumerRecord": "triokafka.records",
    "Deliveries": "triokafka.client.deliveries",
    "Delivery": "triokafka.client.deliveries",
    "Hooks": "triokafka.hooks",
    "KafkaError": "triokafka.errors",
    "NewTopic": "triokafka.client.admin",
    "Node": "triokafka.structs",
    "OffsetAndMetadata": "triokafka.structs",
    "OffsetAndTimestamp": "triokafka.structs",
    "OffsetRange": "triokafka.client.deliveries",
    "PartitionAssignor": "triokafka.assignors",
    "PartitionStream": "triokafka.client.producer.stream",
    "Partitioner": "triokafka.client.producer.partitioner",
    "Producer": "triokafka.client.producer.producer",
    "ProducerInterceptor": "triokafka.client.producer.interceptors",
    "ProducerRecord": "triokafka.client.producer.interceptors",
    "RangeReader": "triokafka.client.reader",
    "RealWorld": "triokafka.world",
    "RecordMetadata": "triokafka.structs",
    "TopicPartition": "triokafka.structs",
    "World": "triokafka.world",
    "read_topic": "triokafka.client.reader",
}
_MODULES: Final = ("errors", "structs", "testing")

__all__ = [
    "AdminClient",
    "ConfigResource",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "Deliveries",
    "Delivery",
    "Hooks",
    "KafkaError",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetRange",
    "PartitionAssignor",
    "PartitionStream",
    "Partitioner",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RangeReader",
    "RealWorld",
    "RecordMetadata",
    "TopicPartition",
    "World",
    "__version__",
    "errors",
    "read_topic",
    "structs",
    "testing",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module, metadata

    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(f"triokafka.{name}")
    elif name == "__version__":
        try:
            value = metadata.version("triokafka")
        except metadata.PackageNotFoundError:
            value = "0+unknown"  # a checkout that is not installed
    else:
        raise AttributeError(f"module 'triokafka' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
