"""Options that begin with ``kafka.``: settings of Java's consumer, turned into those of the client here. No I/O.

What changes what is read, and cannot be done, is refused: serializers, interceptors, securing of connections. What only
tunes Java's clients is left out, what is misspelt is refused, and what nobody knows is left out with one warning.
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
from triokafka.spark.java_settings import NO_PROTECTION, OF_PRODUCERS, PREFIX, is_passed_over, left_out, refuse_misspelt

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
    "interceptor.classes": "Kafka option '{name}' is not supported: interceptors may change what is read",
}
# Objects and functions, which text cannot stand for, and what Spark decides.
_NOT_FROM_TEXT: Final = frozenset((
    "bootstrap_servers", "group_id", "hooks", "stream_factory", "plugin_options", "interceptors", "key_deserializer",
    "value_deserializer", "deserialization_error_policy", "auto_offset_reset", "enable_auto_commit", "defaults",
    "given", "on_delivery",
))  # fmt: skip


class HiddenValues(dict[str, Any]):
    """Options by name, whose values no repr shows: some are passwords.

    Spark can print all local variables of a failed call (``tracebackWithLocals``), so options are kept in these.
    """

    def __repr__(self) -> str:
        return f"<{len(self)} options: {', '.join(self)}>"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings for clients under the names that they have here, of one set of brokers.

    The values may be passwords. Spark can print the local variables of a failed task, so no repr shows them.
    """

    bootstrap_servers: str
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def keywords(self, *names: str) -> dict[str, Any]:
        """What to give to a client: only the settings that it knows when their ``names`` are given."""
        chosen = HiddenValues(client_id="triokafka-spark")
        chosen.update((name, value) for name, value in self.values.items() if not names or name in names)
        chosen["bootstrap_servers"] = self.bootstrap_servers
        return chosen

    def connection(self) -> dict[str, Any]:
        """What is about connections alone: what every kind of client can be given."""
        return self.keywords(*ClientOptions.__dataclass_fields__)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for settings with which one client can serve for all; it does not tell what they are."""
        told = repr(sorted((name, value) for name, value in self.values.items()))
        return (self.bootstrap_servers, hashlib.sha256(told.encode()).hexdigest())


def client_settings(given: Mapping[str, str]) -> tuple[ClientSettings, list[str]]:
    """The settings in ``given`` options, whose names are in lower case, and warnings about those left out.

    Raises:
        ConfigurationError: there are no bootstrap servers, or a setting is refused, misspelt, or has an impossible
            value.
    """
    for name, why in _REFUSED.items():
        if PREFIX + name in given:
            raise ConfigurationError(why.format(name=name))
    servers = given.get(SERVERS, "").strip()
    if not servers:
        raise ConfigurationError(f"Option '{SERVERS}' must be specified for configuring Kafka consumer")
    values = HiddenValues()
    unknown: list[str] = []
    # By name: no variable holds a value when something is refused.
    for name in _names(given):
        setting = name.replace(".", "_")
        if is_passed_over(name, OF_PRODUCERS):
            continue
        if setting in settable():
            values[setting] = typed(str(_fields()[setting].type), given[PREFIX + name])
        elif setting not in settable(ProducerOptions):
            refuse_misspelt(name, "read", settable())
            unknown.append(name)
    _check(servers, values)
    return ClientSettings(servers, values), left_out(unknown)


def _names(given: Mapping[str, str]) -> list[str]:
    return [name.removeprefix(PREFIX) for name in given if name.startswith(PREFIX) and name not in (SERVERS, GROUP_ID)]


def _fields() -> Mapping[str, Any]:
    return ConsumerOptions.__dataclass_fields__


def settable(options: type[ClientOptions] = ConsumerOptions) -> set[str]:
    """What a text can set of a client, the readers' by default, under the names that it has here."""
    return {name for name in options.__dataclass_fields__ if name.islower()} - _NOT_FROM_TEXT


def in_option_names(sentence: str) -> str:
    """A client's sentence with its settings as options of Spark: ``kafka.max.request.size``, not ``max_request_size``.

    What stands in quotes or in a path is left alone: a topic may be called ``client_id``.
    """
    return _named().sub(lambda found: PREFIX + found[0].replace("_", "."), sentence)


@cache
def _named() -> re.Pattern[str]:
    settings = {"bootstrap_servers", *settable(), *settable(ProducerOptions)}
    # What is a word as well is only meant where a value follows: acks=0.
    names = (name if "_" in name else f"{name}(?==)" for name in sorted(settings, key=len, reverse=True))
    return re.compile(rf"(?<![\w.'\"/-])(?:{'|'.join(names)})(?![\w'\"/-])")


def typed(kind: str, text: str) -> Any:
    """The value that ``text`` stands for, by the type of the setting: a password of digits stays text.

    What is no value of that type stays text as well, which the client refuses. Numbers are Java's: digits.
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
    """Look at the values now, so that a wrong one fails where the options are given and not in the first query."""
    check_protection(values)
    try:
        ConsumerOptions.parse(HiddenValues(values, bootstrap_servers=servers))
    except ConfigurationError as error:
        raise ConfigurationError(f"A 'kafka.' option cannot be used: {in_option_names(str(error))}") from None


def check_protection(values: Mapping[str, Any]) -> None:
    """Refuse protection that there is not yet, where the options are given. ``values`` are those of a client.

    Raises:
        ConfigurationError: connections are to be secured.
    """
    asked = str(values.get("security_protocol", "PLAINTEXT"))
    if asked.upper() != "PLAINTEXT":
        raise ConfigurationError(
            f"Kafka option 'security.protocol' is {asked}, which is not supported: {NO_PROTECTION}"
        )
