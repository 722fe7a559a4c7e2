"""A Kafka client and a Kafka broker in Python, for Trio, for asyncio and for code without an event loop.

Under Trio, use `Producer`, `Consumer` and `AdminClient`. `read_topic` reads a range of offsets as Arrow record batches.

- ``triokafka.asyncio`` has the same clients with aiokafka's names, and ``triokafka.blocking`` with kafka-python's.
- ``triokafka.testing`` runs brokers and clusters inside a test, injects faults, and simulates time.
- ``triokafka.spark`` reads and writes topics from PySpark, and ``triokafka.formats`` decodes Avro, Protobuf and JSON.
- ``triokafka.errors`` has all exceptions; `KafkaError` is their base class.
- The command ``triokafka broker`` runs a broker, and ``triokafka cluster`` several.

Names load when they are first used, so importing the package is quick and imports no optional dependency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from triokafka import errors, structs, testing
    from triokafka.assignors import PartitionAssignor
    from triokafka.client.admin import AdminClient, ConfigResource, NewTopic
    from triokafka.client.consumer import Consumer
    from triokafka.client.consumer.deserialization import UndeserializedBytes
    from triokafka.client.consumer.interceptors import ConsumerInterceptor
    from triokafka.client.consumer.process_partitions import process_partitions
    from triokafka.client.consumer.rebalance_listener import ConsumerRebalanceListener
    from triokafka.client.consumer.subscription_state import SubscriptionPattern
    from triokafka.client.deliveries import Deliveries, Delivery, OffsetRange
    from triokafka.client.process_transactions import process_transactions
    from triokafka.client.producer.interceptors import ProducerInterceptor, ProducerRecord
    from triokafka.client.producer.partition_stream import PartitionStream
    from triokafka.client.producer.partitioner import Partitioner
    from triokafka.client.producer.producer import Producer
    from triokafka.client.producer.transactions.transaction import Transaction
    from triokafka.client.reader import RangeReader, read_topic
    from triokafka.client.serializers import (
        BooleanDeserializer,
        BooleanSerializer,
        BytesDeserializer,
        BytesSerializer,
        Deserializer,
        DoubleDeserializer,
        DoubleSerializer,
        FloatDeserializer,
        FloatSerializer,
        IntegerDeserializer,
        IntegerSerializer,
        JsonDeserializer,
        JsonSerializer,
        LongDeserializer,
        LongSerializer,
        Serializer,
        ShortDeserializer,
        ShortSerializer,
        StringDeserializer,
        StringSerializer,
        UUIDDeserializer,
        UUIDSerializer,
    )
    from triokafka.client.token_endpoint import token_endpoint
    from triokafka.errors import KafkaError
    from triokafka.hooks import Hooks
    from triokafka.records import ConsumerRecord
    from triokafka.structs import (
        ConsumerGroupMetadata,
        Node,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )
    from triokafka.world import World
    from triokafka.world.system import RealWorld

    __version__: str

_HOMES: Final[dict[str, str]] = {
    "AdminClient": "triokafka.client.admin",
    "BooleanDeserializer": "triokafka.client.serializers",
    "BooleanSerializer": "triokafka.client.serializers",
    "BytesDeserializer": "triokafka.client.serializers",
    "BytesSerializer": "triokafka.client.serializers",
    "ConfigResource": "triokafka.client.admin",
    "Consumer": "triokafka.client.consumer",
    "ConsumerGroupMetadata": "triokafka.structs",
    "ConsumerInterceptor": "triokafka.client.consumer.interceptors",
    "ConsumerRebalanceListener": "triokafka.client.consumer.rebalance_listener",
    "ConsumerRecord": "triokafka.records",
    "Deliveries": "triokafka.client.deliveries",
    "Delivery": "triokafka.client.deliveries",
    "Deserializer": "triokafka.client.serializers",
    "DoubleDeserializer": "triokafka.client.serializers",
    "DoubleSerializer": "triokafka.client.serializers",
    "FloatDeserializer": "triokafka.client.serializers",
    "FloatSerializer": "triokafka.client.serializers",
    "Hooks": "triokafka.hooks",
    "IntegerDeserializer": "triokafka.client.serializers",
    "IntegerSerializer": "triokafka.client.serializers",
    "JsonDeserializer": "triokafka.client.serializers",
    "JsonSerializer": "triokafka.client.serializers",
    "KafkaError": "triokafka.errors",
    "LongDeserializer": "triokafka.client.serializers",
    "LongSerializer": "triokafka.client.serializers",
    "NewTopic": "triokafka.client.admin",
    "Node": "triokafka.structs",
    "OffsetAndMetadata": "triokafka.structs",
    "OffsetAndTimestamp": "triokafka.structs",
    "OffsetRange": "triokafka.client.deliveries",
    "PartitionAssignor": "triokafka.assignors",
    "PartitionStream": "triokafka.client.producer.partition_stream",
    "Partitioner": "triokafka.client.producer.partitioner",
    "Producer": "triokafka.client.producer.producer",
    "ProducerInterceptor": "triokafka.client.producer.interceptors",
    "ProducerRecord": "triokafka.client.producer.interceptors",
    "RangeReader": "triokafka.client.reader",
    "RealWorld": "triokafka.world.system",
    "RecordMetadata": "triokafka.structs",
    "Serializer": "triokafka.client.serializers",
    "ShortDeserializer": "triokafka.client.serializers",
    "ShortSerializer": "triokafka.client.serializers",
    "StringDeserializer": "triokafka.client.serializers",
    "StringSerializer": "triokafka.client.serializers",
    "SubscriptionPattern": "triokafka.client.consumer.subscription_state",
    "TopicPartition": "triokafka.structs",
    "Transaction": "triokafka.client.producer.transactions.transaction",
    "UUIDDeserializer": "triokafka.client.serializers",
    "UUIDSerializer": "triokafka.client.serializers",
    "UndeserializedBytes": "triokafka.client.consumer.deserialization",
    "World": "triokafka.world",
    "process_partitions": "triokafka.client.consumer.process_partitions",
    "process_transactions": "triokafka.client.process_transactions",
    "read_topic": "triokafka.client.reader",
    "token_endpoint": "triokafka.client.token_endpoint",
}
_MODULES: Final = ("errors", "structs", "testing")
_FOR_THIS_FILE: Final = {"annotations", "TYPE_CHECKING", "Any", "Final"}

__all__ = [
    "AdminClient",
    "BooleanDeserializer",
    "BooleanSerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "Deliveries",
    "Delivery",
    "Deserializer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "FloatDeserializer",
    "FloatSerializer",
    "Hooks",
    "IntegerDeserializer",
    "IntegerSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "KafkaError",
    "LongDeserializer",
    "LongSerializer",
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
    "Serializer",
    "ShortDeserializer",
    "ShortSerializer",
    "StringDeserializer",
    "StringSerializer",
    "SubscriptionPattern",
    "TopicPartition",
    "Transaction",
    "UUIDDeserializer",
    "UUIDSerializer",
    "UndeserializedBytes",
    "World",
    "__version__",
    "errors",
    "process_partitions",
    "process_transactions",
    "read_topic",
    "structs",
    "testing",
    "token_endpoint",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        elif name in _MODULES:
            value = import_module(f"triokafka.{name}")
        elif name == "__version__":
            from importlib import metadata  # takes as long as half a client

            try:
                value = metadata.version("triokafka")
            except metadata.PackageNotFoundError:
                value = "0+unknown"  # a checkout that is not installed
        else:
            raise AttributeError(f"module 'triokafka' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - _FOR_THIS_FILE)
