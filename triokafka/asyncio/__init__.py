"""aiokafka's interface over the SDK, for asyncio: ``from triokafka.asyncio import AIOKafkaProducer``.

Names, arguments, defaults and behaviour are those of aiokafka 0.14, so that replacing ``from aiokafka import`` is the
whole migration; submodules have aiokafka's names, too. A producer runs in the thread of the asyncio loop (on Linux).
Consumers and admin clients of a process share one Trio loop in a thread of its own. Names load at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from triokafka.asyncio import abc as abc
    from triokafka.asyncio import admin as admin
    from triokafka.asyncio import consumer as consumer
    from triokafka.asyncio import coordinator as coordinator
    from triokafka.asyncio import errors as errors
    from triokafka.asyncio import helpers as helpers
    from triokafka.asyncio import partitioner as partitioner
    from triokafka.asyncio import producer as producer
    from triokafka.asyncio import structs as structs
    from triokafka.asyncio.abc import ConsumerRebalanceListener
    from triokafka.asyncio.admin import AIOKafkaAdminClient
    from triokafka.asyncio.consumer import AIOKafkaConsumer
    from triokafka.asyncio.errors import ConsumerStoppedError, IllegalOperation
    from triokafka.asyncio.producer import AIOKafkaProducer
    from triokafka.asyncio.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__version__ = "0.14.0"
"""The version of aiokafka whose interface this is."""

_HOMES: Final[dict[str, str]] = {
    "AIOKafkaAdminClient": "admin",
    "AIOKafkaConsumer": "consumer",
    "AIOKafkaProducer": "producer",
    "ConsumerRebalanceListener": "abc",
    "ConsumerRecord": "structs",
    "ConsumerStoppedError": "errors",
    "IllegalOperation": "errors",
    "OffsetAndMetadata": "structs",
    "OffsetAndTimestamp": "structs",
    "TopicPartition": "structs",
}

__all__ = [
    "AIOKafkaAdminClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
]

_MODULES: Final = frozenset(
    {"abc", "admin", "consumer", "coordinator", "errors", "helpers", "partitioner", "producer"}
) | {"structs"}
_NOT_PUBLIC: Final = {"annotations", "TYPE_CHECKING", "Any", "Final"}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _HOMES:
            value: Any = getattr(import_module(f"triokafka.asyncio.{_HOMES[name]}"), name)
        elif name in _MODULES:
            value = import_module(f"triokafka.asyncio.{name}")
        else:
            raise AttributeError(f"module 'triokafka.asyncio' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES} - _NOT_PUBLIC)
