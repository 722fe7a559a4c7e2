"""Serializes keys, values, headers and timestamps of records for a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from triokafka.client.config import ProducerOptions
from triokafka.client.producer.interceptors import ProducerRecord
from triokafka.client.serializers import Serializer
from triokafka.errors import SerializationError
from triokafka.structs import Buffer


class RecordSerializer:
    """The producer's serializers. ``wall_ms`` is the world's wall clock in milliseconds."""

    def __init__(self, options: ProducerOptions, wall_ms: Callable[[], int]) -> None:
        self._options = options
        self._wall_ms = wall_ms
        self._serializers_see_headers = any(
            isinstance(serializer, Serializer) for serializer in (options.key_serializer, options.value_serializer)
        )

    def prepared(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record with its headers as a list, which serializers may extend."""
        headers: Any = record.headers
        if headers == () and not self._serializers_see_headers:
            return record
        if headers is None:
            headers = ()
        elif isinstance(headers, (str, Mapping)) or not isinstance(headers, Iterable):
            raise TypeError(f"headers are a list of pairs of name and bytes, not {headers!r}")
        return replace(record, headers=list(headers))

    def serialize(self, record: ProducerRecord) -> tuple[int, Buffer | None, Buffer | None]:
        """Return timestamp, key and value of a `prepared` record for the wire.

        Raises:
            SerializationError: key or value is not bytes and cannot be made bytes.
            TypeError, ValueError: headers or timestamp cannot be sent.
        """
        options = self._options
        key = _serialized("key", record.key, options.key_serializer, record)
        value = _serialized("value", record.value, options.value_serializer, record)
        if record.headers:
            _check_headers(record.headers)  # type: ignore[arg-type]
        timestamp = record.timestamp_ms
        if timestamp is None:
            timestamp = self._wall_ms()
        elif isinstance(timestamp, bool) or not isinstance(timestamp, int) or not 0 <= timestamp < 2**63:
            raise ValueError(f"timestamp_ms={timestamp!r} is not a number of milliseconds since the epoch")
        return timestamp, key, value


def _serialized(what: str, given: Any, serializer: Any, record: ProducerRecord) -> Buffer | None:
    if given is None:
        return None
    data = given
    if serializer is not None:
        try:
            if isinstance(serializer, Serializer):
                data = serializer.serialize(record.topic, given, record.headers)  # type: ignore[arg-type]
            else:
                data = serializer(given)
        except Exception as error:
            raise SerializationError(
                f"the {what}_serializer {serializer!r} failed on a {type(given).__name__} for topic {record.topic!r}:"
                f" {str(error) or repr(error)}"
            ) from error
    if data is None or isinstance(data, (bytes, bytearray)):
        return data
    if isinstance(data, memoryview):
        return _flat(data)
    if serializer is None:
        raise SerializationError(
            f"the {what} is a {type(data).__name__}, not bytes: encode it, or set {what}_serializer"
        )
    raise SerializationError(
        f"the {what}_serializer {serializer!r} returned a {type(data).__name__} for a {type(given).__name__}, not bytes"
    )


def _flat(view: memoryview) -> Buffer:
    return view.cast("B") if view.c_contiguous else view.tobytes()


def _check_headers(headers: list[Any]) -> None:
    for position, header in enumerate(headers):
        try:
            name, content = header
        except (TypeError, ValueError):
            raise TypeError(f"headers are pairs of name and bytes, not {header!r}") from None
        if not isinstance(name, str) or not (content is None or isinstance(content, (bytes, bytearray, memoryview))):
            raise TypeError(f"headers are pairs of a str and bytes (or None), not {header!r}")
        if isinstance(content, memoryview):
            headers[position] = (name, _flat(content))
        name.encode()  # lone surrogates are refused here, before a batch is begun
