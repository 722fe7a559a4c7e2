"""What ``df.write.format("triokafka")`` and ``writeStream`` can be told, and which columns they take: names, texts and
refusals of Spark's own Kafka sink."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from triokafka.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS: Final = ("value", "key", "headers", "topic", "partition")
"""The columns that are written. Others are ignored, as the connector does."""

_TYPES: Final = {
    "topic": ("string",),
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
_KNOWN: Final = ("topic", "transactional", "kafka.bootstrap.servers")
# Spark's own, which it hands to every sink with the rest.
_OF_SPARK: Final = frozenset(("checkpointlocation", "path", "queryname", "outputmode"))
# Of the reader: one set of options is often given to both sides.
_OF_THE_READER: Final = frozenset(("includeheaders", "failondataloss"))
_REFUSED_CLIENT: Final = {
    "kafka.key.serializer": "keys are strings or bytes already; cast the column",
    "kafka.value.serializer": "values are strings or bytes already; cast the column",
    "kafka.interceptor.classes": "interceptors of the JVM cannot run here",
    "kafka.transactional.id": "the writer chooses it; use the option transactional",
}
_DEFAULT_PARTITIONERS: Final = frozenset(
    f"org.apache.kafka.clients.producer.{name}"
    for name in ("internals.DefaultPartitioner", "internals.BuiltInPartitioner", "UniformStickyPartitioner")
)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one write, checked.

    Args:
        bootstrap_servers: addresses to begin with.
        topic: where all records go; None when a column says it for each.
        client: further settings of the producer, under its own names. They may hold passwords, so no repr shows them:
            Spark can print the local variables of a failed task.
    """

    bootstrap_servers: str
    topic: str | None
    client: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Check the options that the user gave to Spark, which compares their names without regard to case.

        Raises:
            ConfigurationError: one is missing, unknown or cannot be used; the message names it.
        """
        given = {name.lower(): value for name, value in options.items()}
        client = _client_settings(given)
        _refuse_unknown(given)
        servers = given.get("kafka.bootstrap.servers", "").strip()
        if not servers:
            raise ConfigurationError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka writers")
        if given.get("transactional", "off").lower() != "off":
            raise ConfigurationError(
                "Option 'transactional' can only be 'off' yet: records are written at least once, and once by each"
                " attempt of a task"
            )
        topic = given.get("topic", "").strip() or None
        found = cls(servers, topic, client)
        _check_client(found)
        return found

    def producer_settings(self) -> dict[str, Any]:
        """For `triokafka.Producer`."""
        return {"client_id": "triokafka-spark", **self.client, "bootstrap_servers": self.bootstrap_servers}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check that a frame has the columns that can be written.

    Raises:
        ConfigurationError: one is missing, or has another type; in the connector's words.
    """
    types = {each.name: each.dataType.simpleString() for each in schema}
    if topic is None and "topic" not in types:
        raise ConfigurationError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in types:
        raise ConfigurationError("Required attribute 'value' not found")
    for name, wanted in _TYPES.items():
        found = types.get(name)
        if found is None or (name == "topic" and topic is not None):
            continue
        # A collation is part of a string's type, and means nothing to Kafka.
        if found.partition(" collate")[0] not in wanted:
            raise ConfigurationError(
                f"{name} attribute unsupported type {found}. {name} must be a(n) {' or '.join(wanted)}"
            )


def _client_settings(given: Mapping[str, str]) -> dict[str, Any]:
    kinds = _kinds()
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if not name.startswith("kafka.") or name == "kafka.bootstrap.servers":
            continue
        if name in _REFUSED_CLIENT:
            raise ConfigurationError(
                f"Kafka option '{name.removeprefix('kafka.')}' is not supported: {_REFUSED_CLIENT[name]}"
            )
        if name == "kafka.partitioner.class":
            if value not in _DEFAULT_PARTITIONERS:
                settings["partitioner"] = _partitioner(value)
            continue
        setting = name.removeprefix("kafka.").replace(".", "_")
        settings[setting] = _value(kinds.get(setting, ""), value)
    return settings


def _partitioner(value: str) -> str:
    if ":" in value:
        return value
    raise ConfigurationError(
        f"Kafka option 'partitioner.class' is {value!r}: a class of the JVM cannot run here; name a Python one as"
        " 'module:Name', a triokafka.Partitioner that the workers can import"
    )


def _kinds() -> dict[str, str]:
    from triokafka.client.config import ProducerOptions

    return {each.name: str(each.type) for each in dataclasses.fields(ProducerOptions)}


def _value(kind: str, text: str) -> Any:
    """The text as the producer takes it: what is text there (a password, say) stays so."""
    if kind.startswith("bool") and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind.startswith(("int", "float")):
        try:
            return int(text)
        except ValueError:
            return text
    return text


def _check_client(options: WriteOptions) -> None:
    """Let the producer look at its settings now, so that a wrong one fails when the write is planned, not in a task."""
    from triokafka.client.config import ProducerOptions

    try:
        ProducerOptions.parse(options.producer_settings())
    except ConfigurationError as error:
        raise ConfigurationError(f"A 'kafka.' option cannot be used: {error}") from None


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _KNOWN}
    for name in given:
        if name.startswith("kafka.") or name in known or name in _OF_SPARK or name in _OF_THE_READER:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean '{known[near[0]]}'?" if near else ""
        raise ConfigurationError(f"Unknown option '{name}' of a write{hint}")
