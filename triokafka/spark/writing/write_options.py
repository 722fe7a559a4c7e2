"""The write options of ``format("triokafka")`` and the columns that it accepts: names, messages and errors of Spark's
own Kafka sink."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from triokafka.errors import ConfigurationError
from triokafka.security.java_names import is_javas, python_options
from triokafka.security.secret import Secret
from triokafka.spark.planning.client_settings import (
    SERVERS,
    HiddenValues,
    in_option_names,
    settable,
    typed,
)
from triokafka.spark.planning.read_options import NAMES as NAMES_OF_READER
from triokafka.spark.planning.unknown_settings import (
    OF_CONSUMERS,
    PREFIX,
    is_passed_over,
    left_out,
    refuse_misspelt,
    refuse_without_prefix,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log: Final = logging.getLogger("triokafka.spark")

COLUMNS: Final = ("value", "key", "headers", "topic", "partition")
"""The columns that are written. Others are ignored, as in the connector."""

_TYPES: Final = {
    "topic": ("string",),
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
_SWITCH: Final = {"true": True, "on": True, "false": False, "off": False}
_KNOWN: Final = ("topic", "transactional", SERVERS)
# Spark's own options, which it passes to every sink.
_OF_SPARK: Final = frozenset(("checkpointlocation", "path", "queryname", "outputmode"))
# Options of the reader: users often pass one set of options to both sides.
_OF_THE_READER: Final = frozenset(name.lower() for name in NAMES_OF_READER)
_REFUSED_CLIENT: Final = {
    "kafka.key.serializer": "keys are strings or bytes already; cast the column",
    "kafka.value.serializer": "values are strings or bytes already; cast the column",
    "kafka.interceptor.classes": "interceptors of the JVM cannot run here",
    "kafka.transactional.id": "each task needs one of its own; option 'transactional' names them",
}
_DEFAULT_PARTITIONERS: Final = frozenset(
    f"org.apache.kafka.clients.producer.{name}"
    for name in ("internals.DefaultPartitioner", "internals.BuiltInPartitioner", "UniformStickyPartitioner")
)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The validated options of one write.

    Args:
        bootstrap_servers: the initial broker addresses.
        topic: the topic of all records; None if the column ``topic`` names it.
        transactional: whether each task writes in a transaction, once however often it is repeated.
        client: further producer settings under their Python names. Some are passwords, so no repr shows them: Spark can
            print the local variables of a failed task.
        warnings: messages about options that have no effect.
    """

    bootstrap_servers: str
    topic: str | None
    client: Mapping[str, Any] = field(repr=False)
    warnings: tuple[str, ...] = ()
    transactional: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse the options that the user passed to Spark. Names are case-insensitive, as in Spark.

        Raises:
            ConfigurationError: an option is missing, misspelt or invalid; the message names it.
        """
        given = HiddenValues((name.lower(), value) for name, value in options.items())
        client, warnings = _client_settings(given)
        warnings += _unknown_names(given)
        servers = given.get(SERVERS, "").strip()
        if not servers:
            raise ConfigurationError(f"Option '{SERVERS}' must be specified for configuring Kafka writers")
        transactional = given.get("transactional", "false").strip().lower()
        if transactional not in _SWITCH:
            raise ConfigurationError(f"Option 'transactional' is {transactional!r}: it must be 'true' or 'false'")
        topic = given.get("topic", "").strip() or None
        found = cls(servers, topic, client, tuple(warnings), _SWITCH[transactional])
        _check_client(found)
        return found

    def producer_settings(self) -> dict[str, Any]:
        """Return the arguments of `triokafka.Producer`."""
        settings = HiddenValues(client_id="triokafka-spark")
        settings.update(self.client)
        settings["bootstrap_servers"] = self.bootstrap_servers
        return settings

    def log_warnings(self) -> None:
        """Log the warnings about options that have no effect."""
        for warning in self.warnings:
            _log.warning("format 'triokafka': %s", warning)


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check that a frame has the columns that can be written.

    Raises:
        ConfigurationError: a column is missing or has the wrong type; with the connector's message.
    """
    types = {each.name: each.dataType.simpleString() for each in schema}
    if twice := [name for name in COLUMNS if schema.names.count(name) > 1]:
        raise ConfigurationError(f"the frame has several columns named {', '.join(map(repr, twice))}: select one")
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
        # A collation is part of a string type, and irrelevant to Kafka.
        if found.partition(" collate")[0] not in wanted:
            raise ConfigurationError(
                f"{name} attribute unsupported type {found}. {name} must be a(n) {' or '.join(wanted)}"
            )


def _client_settings(given: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return the producer's settings, and warnings about unknown ones."""
    kinds = _kinds()
    settings = HiddenValues()
    unknown: list[str] = []
    # By name, so that no local variable holds a value when a setting is refused.
    for name in [each.removeprefix(PREFIX) for each in given if each.startswith(PREFIX) and each != SERVERS]:
        if PREFIX + name in _REFUSED_CLIENT:
            raise ConfigurationError(f"Kafka option '{name}' is not supported: {_REFUSED_CLIENT[PREFIX + name]}")
        setting = name.replace(".", "_")
        if name == "partitioner.class":
            if given[PREFIX + name] not in _DEFAULT_PARTITIONERS:
                settings["partitioner"] = _partitioner(given[PREFIX + name])
        elif is_javas(setting):
            settings[setting] = Secret(given[PREFIX + name])
        elif setting in kinds:
            settings[setting] = typed(kinds[setting], given[PREFIX + name])
        elif not (is_passed_over(name, OF_CONSUMERS) or setting in settable()):
            refuse_misspelt(name, "write", kinds)
            unknown.append(name)
    return HiddenValues(python_options(settings)), left_out(unknown)


def _partitioner(value: str) -> str:
    if ":" in value:
        return value
    raise ConfigurationError(
        f"Kafka option 'partitioner.class' is {value!r}: a class of the JVM cannot run here; name a Python one as"
        " 'module:Name', a triokafka.Partitioner that the workers can import"
    )


_NOT_FROM_TEXT: Final = ("given", "hooks", "stream_factory", "ssl_context", "sasl_oauth_token_provider")


def _kinds() -> dict[str, str]:
    from triokafka.client.config import ProducerOptions

    fields = ProducerOptions.__dataclass_fields__
    return {name: str(each.type) for name, each in fields.items() if name not in _NOT_FROM_TEXT}


def _check_client(options: WriteOptions) -> None:
    """Validate the producer's settings now, so that a wrong one fails when the write is planned, not in a task."""
    from triokafka.client.config import ProducerOptions

    try:
        transactional = {"transactional_id": "check"} if options.transactional else {}
        ProducerOptions.parse({**options.producer_settings(), **transactional}).security()
    except ConfigurationError as error:
        raise ConfigurationError(f"A 'kafka.' option cannot be used: {in_option_names(str(error))}") from None


def _unknown_names(given: Mapping[str, str]) -> list[str]:
    """Return warnings about unknown names; refuses a name that resembles a known one, as a probable typo."""
    known = {name.lower(): name for name in _KNOWN}
    unknown = []
    for name in given:
        if name.startswith(PREFIX) or name in known or name in _OF_SPARK or name in _OF_THE_READER:
            continue
        refuse_without_prefix(name, "write", _kinds())
        if near := difflib.get_close_matches(name, known, n=1, cutoff=0.75):
            raise ConfigurationError(f"Unknown option '{name}' of a write; did you mean '{known[near[0]]}'?")
        unknown.append(f"'{name}'")
    return [f"options that the sink does not know are ignored: {', '.join(unknown)}"] if unknown else []
