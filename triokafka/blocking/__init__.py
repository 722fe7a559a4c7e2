"""kafka-python's interface over the SDK, for code without Trio: ``from triokafka.blocking import KafkaProducer``.

Names, arguments, defaults and behaviour are those of kafka-python 3, so that replacing ``from kafka import`` is the
whole migration; submodules have kafka-python's names, too. All clients of a process share one Trio loop in a thread of
its own. Names load when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from triokafka.blocking import admin as admin
    from triokafka.blocking import consumer as consumer
    from triokafka.blocking import coordinator as coordinator
    from triokafka.blocking import errors as errors
    from triokafka.blocking import future as future
    from triokafka.blocking import partitioner as partitioner
    from triokafka.blocking import producer as producer
    from triokafka.blocking import serializer as serializer
    from triokafka.blocking import structs as structs
    from triokafka.blocking.admin import KafkaAdminClient
    from triokafka.blocking.consumer import KafkaConsumer
    from triokafka.blocking.consumer.subscription_state import (
        AsyncConsumerRebalanceListener,
        ConsumerRebalanceListener,
    )
    from triokafka.blocking.enums import IsolationLevel, OffsetSpec
    from triokafka.blocking.producer import KafkaProducer
    from triokafka.blocking.serializer import DefaultSerializer, Deserializer, JsonSerializer, Serializer
    from triokafka.blocking.structs import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        TopicPartition,
        TopicPartitionReplica,
    )

    __version__: str

_HOMES: Final[dict[str, str]] = {
    "AsyncConsumerRebalanceListener": "consumer.subscription_state",
    "ConsumerGroupMetadata": "structs",
    "ConsumerRebalanceListener": "consumer.subscription_state",
    "DefaultSerializer": "serializer",
    "Deserializer": "serializer",
    "IsolationLevel": "enums",
    "JsonSerializer": "serializer",
    "KafkaAdminClient": "admin",
    "KafkaConsumer": "consumer",
    "KafkaProducer": "producer",
    "OffsetAndMetadata": "structs",
    "OffsetSpec": "enums",
    "Serializer": "serializer",
    "TopicPartition": "structs",
    "TopicPartitionReplica": "structs",
}

__all__ = [
    "AsyncConsumerRebalanceListener",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "DefaultSerializer",
    "Deserializer",
    "IsolationLevel",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Serializer",
    "TopicPartition",
    "TopicPartitionReplica",
]

_MODULES: Final = frozenset({"admin", "consumer", "coordinator", "errors", "future", "partitioner", "producer"}) | {
    "serializer",
    "structs",
}
_NOT_PUBLIC: Final = {"annotations", "TYPE_CHECKING", "Any", "Final"}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _HOMES:
            value: Any = getattr(import_module(f"triokafka.blocking.{_HOMES[name]}"), name)
        elif name in _MODULES:
            value = import_module(f"triokafka.blocking.{name}")
        elif name == "__version__":
            import triokafka

            value = triokafka.__version__
        else:
            raise AttributeError(f"module 'triokafka.blocking' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, "__version__"} - _NOT_PUBLIC)
