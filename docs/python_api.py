"""The pages of the Python API: which public name is on which page. The text is the docstrings'."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Final

import triokafka

_FAMILIES: Final = ("Serializer", "Deserializer")

PAGES: Final[dict[str, tuple[str, ...]]] = {
    "Producing": (
        "Producer",
        "Transaction",
        "PartitionStream",
        "Delivery",
        "Deliveries",
        "OffsetRange",
        "RecordMetadata",
        "Partitioner",
        "ProducerInterceptor",
        "ProducerRecord",
    ),
    "Consuming": (
        "Consumer",
        "ConsumerRecord",
        "SubscriptionPattern",
        "ConsumerRebalanceListener",
        "ConsumerInterceptor",
        "PartitionAssignor",
        "ConsumerGroupMetadata",
        "process_partitions",
        "process_transactions",
        "UndeserializedBytes",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "TopicPartition",
    ),
    "Reading ranges": ("read_topic", "RangeReader"),
    "Administration": ("AdminClient", "NewTopic", "ConfigResource", "Node"),
    "Watching and embedding": ("Hooks", "World", "RealWorld", "KafkaError", "token_endpoint"),
}
"""Names of the package by page."""

MODULES: Final[dict[str, str]] = {
    "Blocking": "triokafka.blocking",
    "Spark": "triokafka.spark",
    "Testing": "triokafka.testing",
    "Testing without Trio": "triokafka.testing.blocking",
}
"""Pages of everything that a module names in its ``__all__``."""


def file_of(title: str) -> str:
    """The file of a page, without its ending."""
    return "python-" + title.lower().replace(" ", "-")


def pages() -> dict[str, tuple[str, str]]:
    """Title and text of each page, by file name.

    Raises:
        LookupError: a public name is on no page.
    """
    serializers = tuple(name for name in triokafka.__all__ if name.endswith(_FAMILIES))
    named = {title: [f"triokafka.{name}" for name in names] for title, names in PAGES.items()}
    named["Serializers"] = [f"triokafka.{name}" for name in serializers]
    own = {id(getattr(triokafka, name)) for name in triokafka.__all__}
    for title, home in MODULES.items():
        module = import_module(home)
        named[title] = [f"{home}.{name}" for name in module.__all__ if id(getattr(module, name)) not in own]
    missing = _public() - {name for names in named.values() for name in names}
    if missing:
        raise LookupError(f"add to a page in docs/python_api.py: {', '.join(sorted(missing))}")
    return {f"{file_of(title)}.md": (title, "\n\n".join(map(_entry, names))) for title, names in named.items()}


def _public() -> set[str]:
    names = [name for name in triokafka.__all__ if name != "__version__"]
    return {f"triokafka.{name}" for name in names if not inspect.ismodule(getattr(triokafka, name))}


def _entry(name: str) -> str:
    module, _, attribute = name.rpartition(".")
    value = getattr(import_module(module), attribute)
    if not inspect.isclass(value):
        kind = "autofunction" if callable(value) else "autodata"
        return f"```{{eval-rst}}\n.. {kind}:: {name}\n```"
    members = "" if attribute.endswith(_FAMILIES) and attribute not in _FAMILIES else "   :members:\n"
    inherited = "   :inherited-members: object, Exception, int, str, tuple\n"
    return f"```{{eval-rst}}\n.. autoclass:: {name}\n{members}{inherited}```"
