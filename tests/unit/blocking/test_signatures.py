"""kafka-python's public names, signatures and defaults, compared with those of `triokafka.blocking`.

`DIFFERENCES` has what is not equal, each with its reason; one that is equal after all fails the test, too.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Iterator
from typing import Any, Final

import kafka
import kafka.errors
import pytest

from triokafka import blocking
from triokafka.blocking import errors

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "": tuple(kafka.__all__),
    "admin": (*importlib.import_module("kafka.admin").__all__, "NewTopic", "NewPartitions"),
    "consumer": ("KafkaConsumer",),
    "consumer.subscription_state": ("AsyncConsumerRebalanceListener", "ConsumerRebalanceListener"),
    "coordinator.assignors.abstract": ("AbstractPartitionAssignor", "RebalanceProtocol"),
    "coordinator.assignors.cooperative_sticky": ("CooperativeStickyAssignor",),
    "coordinator.assignors.range": ("RangePartitionAssignor",),
    "coordinator.assignors.roundrobin": ("RoundRobinPartitionAssignor",),
    "coordinator.assignors.sticky.sticky_assignor": ("StickyPartitionAssignor",),
    "future": ("Future",),
    "partitioner": ("DefaultPartitioner", "Partitioner", "StickyPartitioner", "murmur2"),
    "producer": ("KafkaProducer",),
    "producer.future": ("FutureRecordMetadata", "RecordMetadata"),
    "serializer": (
        "DefaultSerializer",
        "Deserializer",
        "DeserializeWrapper",
        "JsonSerializer",
        "Serializer",
        "SerializeWrapper",
    ),
    "structs": (
        "ConsumerGroupMetadata",
        "MemberState",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "TopicPartition",
        "TopicPartitionReplica",
    ),
}
"""The modules of kafka-python that programs import from, and their public names."""

_BY_THE_SDK: Final = "the SDK's assignors assign; these classes only name them"
DIFFERENCES: Final[dict[str, str]] = {
    **{
        f"{kind}.{method}": _BY_THE_SDK
        for kind in (
            "AbstractPartitionAssignor",
            "RangePartitionAssignor",
            "RoundRobinPartitionAssignor",
            "StickyPartitionAssignor",
            "CooperativeStickyAssignor",
        )
        for method in ("assign", "metadata", "on_assignment")
    },
    **{
        f"{kind}.{member}": _BY_THE_SDK
        for kind in ("StickyPartitionAssignor", "CooperativeStickyAssignor")
        for member in ("DEFAULT_GENERATION_ID", "parse_member_metadata")
    },
    "StickyPartitionAssignor.__init__": _BY_THE_SDK,
    "ACLOperation": "also has TWO_PHASE_COMMIT of Apache Kafka 4.3, which kafka-python cannot read",
    "FutureRecordMetadata.__init__": "made by the producer only",
    "FutureRecordMetadata.args": "an internal of the producer",
    "KafkaConsumer(client_id)": "names this package, not kafka-python",
    "KafkaAdminClient(client_id)": "names this package, not kafka-python",
    "KafkaAdminClient(ssl_ciphers)": "as in the other clients; kafka-python's admin client does not have it",
    "KafkaProducer(partitioner)": "an object of this package's class",
    "KafkaConsumer(default_offset_commit_callback)": "a function of this package",
    "KafkaConsumer(partition_assignment_strategy)": "classes of this package",
    "OffsetAndMetadata.__new__": "an offset is required: without one there is nothing to commit",
    "OffsetAndTimestamp.__new__": "the leader epoch may be left out",
    **{
        f"{kind}(selector)": "Trio chooses its own selector"
        for kind in ("KafkaConsumer", "KafkaProducer", "KafkaAdminClient")
    },
    **{f"{kind}(kafka_client)": "one network" for kind in ("KafkaConsumer", "KafkaProducer", "KafkaAdminClient")},
    **{
        f"{kind}(connections_max_silence_ms)": "closes dead connections; kafka-python waits for request_timeout_ms"
        for kind in ("KafkaConsumer", "KafkaProducer", "KafkaAdminClient")
    },
    **{
        f"KafkaConsumer({name})": "bounds the memory of decompressed batches; kafka-python has no bound"
        for name in ("max_poll_bytes", "max_decompressed_batch_bytes")
    },
    "KafkaProducer(buffer_memory)": "bounds the memory of what is not acknowledged; kafka-python has no bound",
}

OTHER_BASES: Final = {
    # The broker is behind the client: the client's metadata are not out of date.
    "UnknownLeaderEpochError": {"InvalidMetadataError"},
}
"""Errors of kafka-python, and base classes that ours do not have."""

_SPECIAL: Final = frozenset({"__init__", "__new__", "__enter__", "__exit__", "__iter__", "__next__", "__call__"})


def theirs_and_ours() -> Iterator[tuple[str, Any, Any]]:
    """Every public name with its two values."""
    for module, names in MODULES.items():
        dotted = f".{module}" if module else ""
        theirs, ours = (
            importlib.import_module(f"kafka{dotted}"),
            importlib.import_module(f"{blocking.__name__}{dotted}"),
        )
        for name in names:
            yield name, getattr(theirs, name), getattr(ours, name, None)


def parameters(function: Any) -> list[tuple[str, str, str]] | None:
    """Return name, kind and default of each parameter; None for an object without a signature, such as a class without
    ``__init__``.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return [(one.name, one.kind.name, _plain(one.default)) for one in signature.parameters.values()]


def _plain(value: Any) -> str:
    return value.name if isinstance(value, enum.Enum) else repr(value)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public members of a class."""
    for name, value in inspect.getmembers(kind):
        is_public = not name.startswith("_") or (name in _SPECIAL and name in vars(kind))
        if is_public and not (issubclass(kind, enum.Enum) and name in ("name", "value")):
            yield name, value


def found_differences() -> set[str]:
    """Names that are missing or have other parameters, as keys of `DIFFERENCES`."""
    found: set[str] = set()
    for name, theirs, ours in theirs_and_ours():
        if ours is None:
            found.add(name)
        elif not inspect.isclass(theirs):
            if callable(theirs) and parameters(theirs) != parameters(ours):
                found.add(name)
        else:
            if issubclass(theirs, enum.Enum) and {one.name: one.value for one in theirs} != {
                one.name: one.value for one in ours
            }:
                found.add(name)
            for member, value in members(theirs):
                if not hasattr(ours, member) or (
                    callable(value) and parameters(value) != parameters(getattr(ours, member))
                ):
                    found.add(f"{name}.{member}")
            if isinstance(getattr(theirs, "DEFAULT_CONFIG", None), dict):
                found |= {f"{name}({option})" for option in different_defaults(theirs, ours)}
    return found


def different_defaults(theirs: Any, ours: Any) -> set[str]:
    """Names of configurations that only one has, or with another default."""
    names = {*theirs.DEFAULT_CONFIG, *ours.DEFAULT_CONFIG}
    missing = object()
    return {
        name for name in names if theirs.DEFAULT_CONFIG.get(name, missing) != ours.DEFAULT_CONFIG.get(name, missing)
    }


def test_every_difference_to_kafka_python_is_listed_with_its_reason() -> None:
    found = found_differences()
    assert found - set(DIFFERENCES) == set(), "not listed"
    assert set(DIFFERENCES) - found == set(), "listed, but equal"


def test_every_public_name_is_exported_and_has_a_docstring() -> None:
    assert sorted(blocking.__all__) == sorted(kafka.__all__)
    for name, _, ours in theirs_and_ours():
        assert (inspect.getdoc(ours) or "").strip(), name


def test_every_method_has_a_docstring() -> None:
    for kind in (blocking.KafkaProducer, blocking.KafkaConsumer, blocking.KafkaAdminClient):
        for name, value in members(kind):
            if callable(value) and not name.startswith("_"):
                assert (inspect.getdoc(value) or "").strip(), f"{kind.__name__}.{name}"


def _their_errors() -> list[str]:
    return [
        name
        for name, value in vars(kafka.errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    ]


@pytest.mark.parametrize("name", _their_errors())
def test_errors_have_kafka_pythons_names_and_are_caught_by_the_same_clauses(name: str) -> None:
    theirs, ours = getattr(kafka.errors, name), getattr(errors, name)
    known = {kind.__name__ for kind in ours.__mro__} | {
        alias for alias in vars(errors) if getattr(errors, alias) in ours.__mro__
    }
    assert {kind.__name__ for kind in theirs.__mro__} - known == OTHER_BASES.get(name, set())
    if getattr(theirs, "errno", None) is not None:
        assert ours.errno == theirs.errno
        assert errors.for_code(theirs.errno).__name__ == kafka.errors.for_code(theirs.errno).__name__
