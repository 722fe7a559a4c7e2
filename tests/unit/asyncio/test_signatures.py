"""The names, arguments and defaults of `triokafka.asyncio` are those of aiokafka."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

aiokafka = pytest.importorskip("aiokafka")

MODULES = [
    *("", ".abc", ".admin", ".admin.config_resource", ".consumer", ".errors", ".helpers", ".partitioner", ".producer"),
    *(".structs", ".coordinator.assignors.range", ".coordinator.assignors.roundrobin"),
]
LEFT_OUT = {
    "AIOKafkaClient": "aiokafka's connection manager; programs have no use for it",
    "ProducerFenced": "the SDK's class, whose message is its own",
    "murmur2": "a compiled function",
    "ConsumerRecord": "the SDK's class: compiled, immutable; the consumer's test compares the attributes",
}
CLASSES = ["AIOKafkaProducer", "AIOKafkaConsumer", "admin.AIOKafkaAdminClient"]


def both(name: str) -> tuple[Any, Any]:
    """Return aiokafka's object with this name, and ours."""
    found = []
    for package in ("aiokafka", "triokafka.asyncio"):
        module, _, attribute = f"{package}.{name}".rpartition(".")
        found.append(getattr(importlib.import_module(module), attribute))
    return found[0], found[1]


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Return names, kinds and defaults; those that are objects of the libraries count by their type's name."""
    return [
        (one.name, one.kind, _plain(one.default))
        for one in inspect.signature(function).parameters.values()
        if not one.name.startswith("_")
    ]


def _plain(default: Any) -> Any:
    if default is inspect.Parameter.empty or default is None or isinstance(default, (bool, int, str)):
        return default
    if isinstance(default, tuple):
        return tuple(getattr(one, "__name__", one) for one in default)
    return type(default).__name__


@pytest.mark.parametrize("module", MODULES)
def test_public_names_of_the_module_exist(module: str) -> None:
    theirs = importlib.import_module(f"aiokafka{module}")
    ours = importlib.import_module(f"triokafka.asyncio{module}")
    public = {
        name
        for name, value in vars(theirs).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith("aiokafka")
        and (value.__module__ == theirs.__name__ or name in getattr(theirs, "__all__", ()))
    }
    assert public - LEFT_OUT.keys() <= {name for name in public if hasattr(ours, name)}


@pytest.mark.parametrize("name", CLASSES)
def test_methods_have_the_same_arguments_and_defaults(name: str) -> None:
    theirs, ours = both(name)
    methods = [one for one in dir(theirs) if not one.startswith("_") and inspect.isfunction(getattr(theirs, one))]
    assert len(methods) > 8
    for method in ["__init__", *methods]:
        assert parameters(getattr(ours, method)) == parameters(getattr(theirs, method)), method
        assert inspect.iscoroutinefunction(getattr(ours, method)) == inspect.iscoroutinefunction(
            getattr(theirs, method)
        ), method
    attributes = {"client"} if name == "AIOKafkaProducer" else set()  # aiokafka's constructor sets it
    assert {one for one in dir(ours) if not one.startswith("_")} == {*methods, *attributes}


@pytest.mark.parametrize(
    "name", ["helpers.create_ssl_context", "admin.NewTopic", "admin.NewPartitions", "admin.RecordsToDelete"]
)
def test_functions_have_the_same_arguments_and_defaults(name: str) -> None:
    theirs, ours = both(name)
    assert parameters(ours) == parameters(theirs)


def test_named_tuples_have_the_same_fields() -> None:
    for name in ("TopicPartition", "OffsetAndMetadata", "RecordMetadata", "BrokerMetadata", "PartitionMetadata"):
        theirs, ours = both(f"structs.{name}")
        assert ours._fields == theirs._fields, name
    theirs, ours = both("structs.OffsetAndTimestamp")
    assert ours._fields == theirs._fields


def test_errors_have_the_codes_of_aiokafka() -> None:
    theirs = importlib.import_module("aiokafka.errors")
    ours = importlib.import_module("triokafka.asyncio.errors")
    for code, error in theirs.kafka_errors.items():
        if code != 13:  # aiokafka calls it StaleLeaderEpochCodeError; Kafka NetworkException
            assert ours.for_code(code) is getattr(ours, error.__name__), code
            assert ours.for_code(code).message == {4: "INVALID_FETCH_REQUEST"}.get(code, error.message)
            assert ours.for_code(code).description
    assert ours.for_code(12345) is ours.UnknownError
