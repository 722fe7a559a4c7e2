"""Options with the prefix ``kafka.``: settings of Java's consumer, mapped to the settings of this client. No I/O.

Unsupported settings that change the returned records are refused: serializers, interceptors, security. Settings that
only tune Java's clients are ignored, misspelt ones are refused, and unknown ones are ignored with one warning.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from triokafka.client.config import ClientOptions, ConsumerOptions, ProducerOptions
from triokafka.errors import ConfigurationError
from triokafka.security.java_names import is_javas, python_options
from triokafka.security.secret import Secret, reveal
from triokafka.spark.planning.unknown_settings import (
    OF_PRODUCERS,
    PREFIX,
    is_passed_over,
    left_out,
    refuse_misspelt,
)

SERVERS: Final = "kafka.bootstrap.servers"
GROUP_ID: Final = "kafka.group.id"

_BYTES: Final = (
    "Kafka option '{name}' is not supported as {what} are deserialized as byte arrays with ByteArrayDeserializer. Use"
    " DataFrame operations to explicitly deserialize the {what}."
)
_REFUSED: Final = {
    "auto.offset.reset": "Kafka option '{name}' is not supported. Instead set the source option 'startingoffsets' to"
    " 'earliest' or 'latest' to specify where to start. It only applies when a new query is started; resuming always"
    " picks up where the query left off.",
    "key.deserializer": _BYTES.replace("{what}", "keys"),
    "value.deserializer": _BYTES.replace("{what}", "values"),
    "enable.auto.commit": "Kafka option '{name}' is not supported: Spark keeps offsets in its checkpoint; option"
    " 'commitGroupId' commits them to a group as well",
    "interceptor.classes": "Kafka option '{name}' is not supported: interceptors may change the records",
}
# Objects and functions, which have no text form, and settings that Spark controls.
_NOT_FROM_TEXT: Final = frozenset((
    "bootstrap_servers", "group_id", "hooks", "stream_factory", "plugin_options", "interceptors", "key_deserializer",
    "value_deserializer", "deserialization_error_policy", "auto_offset_reset", "enable_auto_commit", "defaults",
    "given", "on_delivery", "ssl_context", "sasl_oauth_token_provider",
))  # fmt: skip


class HiddenValues(dict[str, Any]):
    """Options by name. Their repr omits the values, because some are passwords.

    Spark can print the local variables of a failed call (``tracebackWithLocals``), so options are kept in these dicts.
    """

    def __repr__(self) -> str:
        return f"<{len(self)} options: {', '.join(self)}>"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Client settings under this package's names, for one set of brokers.

    The repr omits the values: some are passwords, and Spark can print the local variables of a failed task.
    """

    bootstrap_servers: str
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def keywords(self, *names: str) -> dict[str, Any]:
        """Return keyword arguments for a client, limited to ``names`` if any are given."""
        chosen = HiddenValues(client_id="triokafka-spark")
        chosen.update((name, value) for name, value in self.values.items() if not names or name in names)
        chosen["bootstrap_servers"] = self.bootstrap_servers
        return chosen

    def connection(self) -> dict[str, Any]:
        """Return the settings about connections, which every kind of client accepts."""
        return self.keywords(*ClientOptions.__dataclass_fields__)

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for settings with which clients can be shared; it does not reveal the values."""
        told = repr(sorted((name, reveal(value)) for name, value in self.values.items()))
        return (self.bootstrap_servers, hashlib.sha256(told.encode()).hexdigest())


def client_settings(given: Mapping[str, str]) -> tuple[ClientSettings, list[str]]:
    """Parse the settings in ``given`` (lower-case names), and return warnings about ignored ones.

    Raises:
        ConfigurationError: there are no bootstrap servers, or a setting is refused, misspelt, or has an invalid value.
    """
    for name, why in _REFUSED.items():
        if PREFIX + name in given:
            raise ConfigurationError(why.format(name=name))
    servers = given.get(SERVERS, "").strip()
    if not servers:
        raise ConfigurationError(f"Option '{SERVERS}' must be specified for configuring Kafka consumer")
    values = HiddenValues()
    unknown: list[str] = []
    # By name, so that no local variable holds a value when a setting is refused.
    for name in _names(given):
        setting = name.replace(".", "_")
        if is_passed_over(name, OF_PRODUCERS):
            continue
        if is_javas(setting):
            values[setting] = Secret(given[PREFIX + name])
        elif setting in settable():
            values[setting] = typed(str(_fields()[setting].type), given[PREFIX + name])
        elif setting not in settable(ProducerOptions):
            refuse_misspelt(name, "read", settable())
            unknown.append(name)
    values = HiddenValues(python_options(values))
    _check(servers, values)
    return ClientSettings(servers, values), left_out(unknown)


def _names(given: Mapping[str, str]) -> list[str]:
    return [name.removeprefix(PREFIX) for name in given if name.startswith(PREFIX) and name not in (SERVERS, GROUP_ID)]


def _fields() -> Mapping[str, Any]:
    return ConsumerOptions.__dataclass_fields__


def settable(options: type[ClientOptions] = ConsumerOptions) -> set[str]:
    """Return the settings of a client (by default the readers') that have a text form, under this package's names."""
    return {name for name in options.__dataclass_fields__ if name.islower()} - _NOT_FROM_TEXT


def in_option_names(sentence: str) -> str:
    """Replace client settings in a message with Spark's option names: ``kafka.max.request.size``.

    Names in quotes or paths stay: a topic may be called ``client_id``.
    """
    return _named().sub(lambda found: PREFIX + found[0].replace("_", "."), sentence)


@cache
def _named() -> re.Pattern[str]:
    settings = {"bootstrap_servers", *settable(), *settable(ProducerOptions)}
    # A name that is also a word counts only before a value: acks=0.
    names = (name if "_" in name else f"{name}(?==)" for name in sorted(settings, key=len, reverse=True))
    return re.compile(rf"(?<![\w.'\"/-])(?:{'|'.join(names)})(?![\w'\"/-])")


def typed(kind: str, text: str) -> Any:
    """Parse ``text`` by the type of the setting; for a text setting, digits stay text (a password, say).

    A value of the wrong type also stays text, which the client refuses. Numbers have Java's syntax: digits.
    """
    if kind.startswith("bool"):
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if kind.startswith(("int", "float")):
        if re.fullmatch("[+-]?[0-9]{1,19}", text.strip()):
            return int(text)
        if kind.startswith("float") and re.fullmatch(r"[+-]?[0-9]{1,19}\.[0-9]{1,19}", text.strip()):
            return float(text)
    return text


def _check(servers: str, values: Mapping[str, Any]) -> None:
    """Validate the values now, so that a wrong one fails where the options are given, not in the first query."""
    try:
        ConsumerOptions.parse(HiddenValues(values, bootstrap_servers=servers)).security()
    except ConfigurationError as error:
        raise ConfigurationError(f"A 'kafka.' option cannot be used: {in_option_names(str(error))}") from None
