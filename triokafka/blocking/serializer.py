"""Serializers as in ``kafka.serializer``, with the arguments topic, headers, data."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

Headers = list[tuple[str, bytes]]


class Serializer(ABC):
    """Converts objects to bytes."""

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Return ``data`` as bytes; None for null."""

    def close(self) -> None:  # noqa: B027 - not every serializer has something to close
        """Close the serializer; called when the client closes."""


class Deserializer(ABC):
    """Converts bytes to objects."""

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """Return the object for ``data``."""

    def close(self) -> None:  # noqa: B027
        """Close the deserializer; called when the client closes."""


class DefaultSerializer(Serializer, Deserializer):
    """Text in an encoding. Bytes pass through unchanged."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Return the text as bytes."""
        return data if data is None or isinstance(data, (bytes, bytearray, memoryview)) else data.encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """The text."""
        return None if data is None else data.decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """JSON text in an encoding."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Return the object as JSON text in bytes."""
        return None if data is None else super().serialize(topic, headers, json.dumps(data))

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """Return the object that the JSON text describes."""
        return None if data is None else json.loads(super().deserialize(topic, headers, data))


class SerializeWrapper(Serializer):
    """A function of the data, as a serializer."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Return the function's result."""
        return data if self.fn is None else self.fn(data)


class DeserializeWrapper(Deserializer):
    """A function of the bytes, as a deserializer."""

    def __init__(self, fn: Callable[[bytes], Any] | None) -> None:
        self.fn = fn

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """Return the function's result."""
        return data if self.fn is None else self.fn(data)
