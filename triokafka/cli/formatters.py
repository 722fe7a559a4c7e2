"""Record formatters of ``triokafka consume``: `Formatter` and its implementations. Pure: bytes in, bytes out."""

from __future__ import annotations

import functools
import json
import logging
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.record_codecs import Decode, RegistryOptions, decoder
from triokafka.cli.user_classes import check_properties, imported, made, text_of, truth

if TYPE_CHECKING:
    from triokafka.protocol.stored.versioned import VersionedMessage
    from triokafka.records import ConsumerRecord
    from triokafka.structs import Buffer

    Kind = type[VersionedMessage]

logger = logging.getLogger("triokafka.consume")

_TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}
_KCAT_TIMESTAMP_TYPES: Final = {0: "create", 1: "logappend"}


Formatter = Callable[["ConsumerRecord"], bytes]
"""Returns the printed bytes of a record with the line separator; empty prints nothing. May raise for a record that it
cannot read."""


class DefaultFormatter:
    """Prints the value, preceded by the parts that the properties select.

    ``print.timestamp``, ``print.partition``, ``print.offset``, ``print.delivery``, ``print.epoch``, ``print.headers``,
    ``print.key`` (all false) and ``print.value`` (true), separated by ``key.separator`` (a tab) and ended by
    ``line.separator`` (a new line). ``headers.separator`` (a comma) separates headers, ``null.literal`` (``null``)
    represents null. Only share groups count deliveries, which are not read here: it is always
    ``NOT_PRESENT``.
    """

    PROPERTIES: Final = frozenset(
        {
            "print.timestamp", "print.partition", "print.offset", "print.delivery", "print.epoch", "print.headers",
            "print.key", "print.value", "key.separator", "line.separator", "headers.separator", "null.literal",
            "key.deserializer", "value.deserializer", "headers.deserializer",
        }
    )  # fmt: skip

    def __init__(self, properties: Mapping[str, str], key: Decode | None = None, value: Decode | None = None) -> None:
        check_properties(properties, self.PROPERTIES)
        self._shows = {
            name: truth(properties, f"print.{name}", default=name == "value")
            for name in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
        }
        self._separator = text_of(properties, "key.separator", "\t")
        self._end = text_of(properties, "line.separator", "\n")
        self._headers_separator = text_of(properties, "headers.separator", ",")
        self._null = text_of(properties, "null.literal", "null")
        self._key = _deserializer(properties, "key.deserializer", key)
        self._value = _deserializer(properties, "value.deserializer", value)
        self._header = _deserializer(properties, "headers.deserializer")

    def __call__(self, record: ConsumerRecord) -> bytes:
        parts: list[bytes] = []
        shows = self._shows
        if shows["timestamp"]:
            kind = _TIMESTAMP_TYPES.get(record.timestamp_type)
            parts.append(f"{kind}:{record.timestamp}".encode() if kind else b"NO_TIMESTAMP")
        if shows["partition"]:
            parts.append(f"Partition:{record.partition}".encode())
        if shows["offset"]:
            parts.append(f"Offset:{record.offset}".encode())
        if shows["delivery"]:
            parts.append(b"Delivery:NOT_PRESENT")
        if shows["epoch"]:
            parts.append(f"Epoch:{record.leader_epoch}".encode())
        if shows["headers"]:
            parts.append(self._headers(record))
        if shows["key"]:
            parts.append(self._shown(record.topic, record.key, self._key))
        if shows["value"]:
            parts.append(self._shown(record.topic, record.value, self._value))
        return self._separator.join(parts) + self._end if parts else b""

    def _shown(self, topic: str, data: Buffer | None, deserialize: Callable[[str, bytes], Any] | None = None) -> bytes:
        if data is None:
            return self._null
        if deserialize is None:
            return bytes(data)
        found = deserialize(topic, bytes(data))
        if isinstance(found, bytes):
            return found
        is_json = isinstance(found, dict | list | bool | float | None)  # others may be any object of Python
        text = json.dumps(found, ensure_ascii=False, default=str) if is_json else str(found)
        return text.encode(errors="replace")

    def _headers(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._headers_separator.join(
            name.encode() + b":" + self._shown(record.topic, value, self._header) for name, value in record.headers
        )


class JsonFormatter:
    """Prints a line of JSON for each record: topic, partition, offset, timestamp, key, value, headers.

    Keys, values and header values are text. Bytes that are not UTF-8 are Base64 in a field whose name ends in
    ``_base64`` instead, so that ``value`` is present and null only for a null value. With a deserializer, ``key`` and
    ``value`` are its result if JSON can represent it, else the result's text.
    """

    PROPERTIES: Final = frozenset({"key.deserializer", "value.deserializer"})

    def __init__(self, properties: Mapping[str, str], key: Decode | None = None, value: Decode | None = None) -> None:
        check_properties(properties, self.PROPERTIES)
        self._key = _deserializer(properties, "key.deserializer", key)
        self._value = _deserializer(properties, "value.deserializer", value)

    def __call__(self, record: ConsumerRecord) -> bytes:
        document: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": _TIMESTAMP_TYPES.get(record.timestamp_type, "NoTimestamp"),
            **self._field("key", record.topic, record.key, self._key),
            **self._field("value", record.topic, record.value, self._value),
            "headers": [
                {"name": name, **self._field("value", record.topic, value, None)} for name, value in record.headers
            ],
        }
        return json.dumps(document, ensure_ascii=False, default=str).encode(errors="replace") + b"\n"

    def _field(
        self, name: str, topic: str, data: Buffer | None, deserialize: Callable[[str, bytes], Any] | None
    ) -> Mapping[str, Any]:
        if data is None:
            return {name: None}
        found = bytes(data)
        if deserialize is not None:
            shown = deserialize(topic, found)
            if not isinstance(shown, bytes):
                return {name: shown}
            found = shown
        try:
            return {name: found.decode()}
        except UnicodeDecodeError:
            return {f"{name}_base64": b64encode(found).decode()}


class KcatJsonFormatter:
    """Prints a line of JSON for each record with the fields of kcat's ``-J``, without the number of the broker.

    ``ts`` and ``tstype`` are the timestamp and its source, ``headers`` a flat list of names and values, ``payload`` the
    value. Bytes that are not UTF-8 become replacement characters: use `JsonFormatter` for them.
    """

    PROPERTIES: Final = frozenset({"key.deserializer", "value.deserializer"})

    def __init__(self, properties: Mapping[str, str], key: Decode | None = None, value: Decode | None = None) -> None:
        check_properties(properties, self.PROPERTIES)
        self._key = _deserializer(properties, "key.deserializer", key)
        self._value = _deserializer(properties, "value.deserializer", value)

    def __call__(self, record: ConsumerRecord) -> bytes:
        document: dict[str, Any] = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        kind = _KCAT_TIMESTAMP_TYPES.get(record.timestamp_type)
        if kind is not None:
            document["tstype"], document["ts"] = kind, record.timestamp
        if record.headers:
            document["headers"] = [part for name, value in record.headers for part in (name, self._text("", value))]
        document["key"] = self._text(record.topic, record.key, self._key)
        document["payload"] = self._text(record.topic, record.value, self._value)
        return (
            json.dumps(document, ensure_ascii=False, default=str, separators=(",", ":")).encode(errors="replace")
            + b"\n"
        )

    def _text(self, topic: str, data: Buffer | None, deserialize: Callable[[str, bytes], Any] | None = None) -> Any:
        if data is None:
            return None
        found = bytes(data) if deserialize is None else deserialize(topic, bytes(data))
        return found.decode(errors="replace") if isinstance(found, bytes) else found


class LoggingFormatter(DefaultFormatter):
    """Prints as `DefaultFormatter` does, and logs a line for each record."""

    def __call__(self, record: ConsumerRecord) -> bytes:
        logger.info("%s:%d, key:%r, value:%r", _TIMESTAMP_TYPES.get(record.timestamp_type, "NoTimestamp"),
                    record.timestamp, record.key, record.value)  # fmt: skip
        return super().__call__(record)


class NoOpFormatter:
    """Prints nothing, for measurements."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        check_properties(properties, frozenset())

    def __call__(self, record: ConsumerRecord) -> bytes:
        return b""


class ChecksumFormatter:
    """Prints a CRC-32C over timestamp, key and value, preceded by the topic's name with the property ``topic``."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        check_properties(properties, frozenset({"topic"}))
        self._prefix = f"{properties['topic']}:" if properties.get("topic") else ""

    def __call__(self, record: ConsumerRecord) -> bytes:
        from triokafka.checksum import crc32c

        checksum = crc32c(record.timestamp.to_bytes(8, "big", signed=True))
        for part in (record.key, record.value):
            size = -1 if part is None else len(part)
            checksum = crc32c(
                b"" if part is None else bytes(part), crc32c(size.to_bytes(4, "big", signed=True), checksum)
            )
        return f"{self._prefix}checksum:{checksum}\n".encode()


class CoordinatorFormatter:
    """Prints records of a coordinator's topic as lines of JSON, as Kafka's tools do; skips all others.

    ``key`` has ``type`` and ``data``, ``value`` has ``version`` and ``data``; the value of a tombstone is null.
    """

    def __init__(self, properties: Mapping[str, str], messages: Callable[[], Mapping[int, tuple[Kind, Kind]]]) -> None:
        check_properties(properties, frozenset())
        self._messages = messages()

    def __call__(self, record: ConsumerRecord) -> bytes:
        from triokafka.protocol.stored.as_json import as_json
        from triokafka.protocol.stored.versioned import stored_version

        if record.key is None:
            return b""
        kind = stored_version(record.key)
        if kind not in self._messages:
            return b""
        keys, values = self._messages[kind]
        document: dict[str, Any] = {"key": {"type": kind, "data": as_json(keys.decode_versioned(record.key), kind)}}
        document["value"] = None
        if record.value is not None:
            version = stored_version(record.value)
            document["value"] = {
                "version": version, "data": as_json(values.decode_versioned(record.value), version)
            }  # fmt: skip
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def _committed_offsets() -> Mapping[int, tuple[Kind, Kind]]:
    from triokafka.protocol.stored.offset_commit import OffsetCommitKey, OffsetCommitValue

    return dict.fromkeys((0, 1), (OffsetCommitKey, OffsetCommitValue))


def _group_metadata() -> Mapping[int, tuple[Kind, Kind]]:
    from triokafka.protocol.stored.group_metadata import GroupMetadataKey, GroupMetadataValue

    return {2: (GroupMetadataKey, GroupMetadataValue)}


def _transaction_log() -> Mapping[int, tuple[Kind, Kind]]:
    from triokafka.protocol.stored.transaction_log import TransactionLogKey, TransactionLogValue

    return {0: (TransactionLogKey, TransactionLogValue)}


_KINDS: Final[Mapping[str, Callable[[Mapping[str, str]], Formatter]]] = {
    "default": DefaultFormatter,
    "json": JsonFormatter,
    "kcat-json": KcatJsonFormatter,
    "logging": LoggingFormatter,
    "noop": NoOpFormatter,
    "checksum": ChecksumFormatter,
    "offsets": functools.partial(CoordinatorFormatter, messages=_committed_offsets),
    "group-metadata": functools.partial(CoordinatorFormatter, messages=_group_metadata),
    "transaction-log": functools.partial(CoordinatorFormatter, messages=_transaction_log),
}
_DECODING: Final[Mapping[str, Callable[..., Formatter]]] = {
    "default": DefaultFormatter, "json": JsonFormatter, "kcat-json": KcatJsonFormatter, "logging": LoggingFormatter,
}  # fmt: skip
# The names in Kafka's tool.
_CLASS_NAMES: Final = {
    "DefaultMessageFormatter": "default",
    "LoggingMessageFormatter": "logging",
    "NoOpMessageFormatter": "noop",
    "ChecksumMessageFormatter": "checksum",
    "OffsetsMessageFormatter": "offsets",
    "GroupMetadataMessageFormatter": "group-metadata",
    "TransactionLogMessageFormatter": "transaction-log",
}


def make_formatter(
    name: str, properties: Mapping[str, str], key: Decode | None = None, value: Decode | None = None
) -> Formatter:
    """Create a formatter by its name, Kafka's class name, or a user's ``module:Class``, which receives the properties.

    ``key`` and ``value`` decode the printed keys and values.

    Raises:
        UsageError: the formatter does not exist, does not know a property, or does not decode.
    """
    short = _CLASS_NAMES.get(name.rpartition(".")[2].rpartition("$")[2], name)
    kind = _KINDS.get(short)
    if kind is None:
        if ":" not in name:
            raise click.UsageError(f"--formatter: {name!r} is not one of {', '.join(_KINDS)}, nor a module:Class.")
        kind = imported("--formatter", name)
    if key is not None or value is not None:
        if short not in _DECODING:
            raise click.UsageError(f"--formatter {name} prints no decoded keys and values.")
        kind = functools.partial(_DECODING[short], key=key, value=value)
    formatter: Formatter = made("--formatter", kind, properties)
    return formatter


def _deserializer(
    properties: Mapping[str, str], name: str, decode: Decode | None = None
) -> Callable[[str, bytes], Any] | None:
    """Convert a `Deserializer`, or a function of the bytes, to a function of topic and bytes.

    The property may also be a class of Kafka's own. ``decode`` is used when there is no property.
    """
    wanted = properties.get(name)
    if wanted and wanted.startswith("org.apache.kafka."):
        decode, wanted = decoder(f"--property {name}", wanted, RegistryOptions(None)), None
    if not wanted:
        return None if decode is None else lambda topic, data: decode(data)
    found = imported(f"--property {name}", wanted)
    instance = found() if isinstance(found, type) and hasattr(found, "deserialize") else found
    deserialize: Callable[[str, bytes], Any] | None = getattr(instance, "deserialize", None)
    if deserialize is not None:
        return deserialize
    if not callable(instance):
        raise click.UsageError(f"--property {name}: {wanted!r} is not a deserializer.")
    return lambda topic, data: instance(data)
