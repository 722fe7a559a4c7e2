"""Serializers as ``kafka.serializer`` has them: topic, headers, data, in that order."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

Headers = list[tuple[str, bytes]]


class Serializer(ABC):
    """Makes bytes of an object."""

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """The bytes of ``data``; None for null."""

    def close(self) -> None:  # noqa: B027 - not every serializer has something to close
        """Called when the client is closed."""


class Deserializer(ABC):
    """Makes an object of bytes."""

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """The object that ``data`` stands for."""

    def close(self) -> None:  # noqa: B027
        """Called when the client is closed."""


class DefaultSerializer(Serializer, Deserializer):
    """Text in an encoding. Bytes are sent as they are."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """The bytes of a text."""
        return data if data is None or isinstance(data, (bytes, bytearray, memoryview)) else data.encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """The text."""
        return None if data is None else data.decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """JSON text in an encoding."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """The bytes of a JSON text."""
        return None if data is None else super().serialize(topic, headers, json.dumps(data))

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """What the JSON text says."""
        return None if data is None else json.loads(super().deserialize(topic, headers, data))


class SerializeWrapper(Serializer):
    """A function of the data as a serializer."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """What the function says."""
        return data if self.fn is None else self.fn(data)


class DeserializeWrapper(Deserializer):
    """A function of the bytes as a deserializer."""

    def __init__(self, fn: Callable[[bytes], Any] | None) -> None:
        self.fn = fn

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """What the function says."""
        return data if self.fn is None else self.fn(data)
