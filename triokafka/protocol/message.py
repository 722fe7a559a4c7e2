"""Messages: declared structures with versions, and the codec of each version.

A declaration is a class whose fields are made by `field`; the class statement names the API key and the versions::

    class HeartbeatRequest(Request["HeartbeatResponse"], api_key=12, versions="0-4", flexible="4+"):
        group_id: str = field(String, doc="The group's id.")

The codec of one version is generated at its first use (``compiler.py``) from the construct tree that
``construct(version)`` returns, which is also the reference that the codec is tested equal to. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import modules
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast

from triokafka.errors import UnsupportedVersionError
from triokafka.protocol import compiler
from triokafka.protocol.codec_runtime import MIN_PART_BYTES
from triokafka.protocol.declaration import (
    Field,
    Struct,
    StructMeta,
    VersionRange,
    field,
    iter_structs,
    version_range,
)
from triokafka.protocol.structures import Structure
from triokafka.structs import Buffer

MOST_MEMORY: Final = 64
"""How many times its bytes a decoded message takes in memory at most, if it is nothing but small elements."""


class Message(Struct):
    """A structure that is sent or stored by itself, and so has versions.

    ``versions`` are the stable ones, which may be negotiated; ``all_versions`` adds those that Kafka marks as unstable.
    ``flexible`` are the versions with compact types and tagged fields.
    """

    versions: ClassVar[VersionRange]
    all_versions: ClassVar[VersionRange]
    flexible: ClassVar[VersionRange]
    _decoders: ClassVar[dict[int, Callable[[bytes, int], Any]]]
    _view_decoders: ClassVar[dict[int, Callable[[memoryview, int], Any]]]
    _prefix_decoders: ClassVar[dict[int, Callable[[bytes, int], Any]]]
    _careful_decoders: ClassVar[dict[tuple[int, bool, bool], Callable[[Any, int, list[float]], Any]]]
    _encoders: ClassVar[dict[int, Callable[[Any, list[Buffer], list[int]], None]]]
    _carries_records: ClassVar[bool | None]

    def __init_subclass__(cls, *, versions: str = "none", flexible: str = "none", unstable: str | None = None) -> None:
        super().__init_subclass__()
        cls.versions = version_range(versions)
        cls.all_versions = VersionRange(cls.versions.min, version_range(unstable).max) if unstable else cls.versions
        cls.flexible = version_range(flexible)
        cls._decoders = {}
        cls._view_decoders = {}
        cls._prefix_decoders = {}
        cls._careful_decoders = {}
        cls._encoders = {}
        cls._carries_records = None

    @classmethod
    def construct(cls, version: int) -> Structure:
        """The interpreted construct of one version: slow, readable, the reference for the generated codec.

        Raises:
            UnsupportedVersionError: the message has no such version.
        """
        if version not in cls.all_versions:
            raise UnsupportedVersionError(f"{cls.__name__} has versions {cls.all_versions}, not {version}")
        return cls.structure(version, flexible=version in cls.flexible)

    @classmethod
    def decode(cls, buffer: Buffer, version: int, offset: int = 0) -> Self:
        """Read one message that fills ``buffer`` from ``offset`` to its end.

        Fields of type ``Records`` are slices of ``buffer``, which they keep alive; all else is copied. Text that is not
        UTF-8 has replacement characters, as in Java.

        Raises:
            ProtocolError: the bytes are not such a message; with the path of the field and the offset.
            UnsupportedVersionError: the message has no such version.
        """
        decoder: Any
        if type(buffer) is bytes:
            try:
                decoder = cls._decoders[version]
            except KeyError:
                decoder = compiler.make_decoder(cls, version)
        elif cls._carries_records or compiler.carries_records(cls):
            buffer = memoryview(buffer).cast("B")
            try:
                decoder = cls._view_decoders[version]
            except KeyError:
                decoder = compiler.make_decoder(cls, version, view=True)
        else:
            return cls.decode(bytes(buffer), version, offset)
        try:
            try:
                made: Self = decoder(buffer, offset)
            except UnicodeDecodeError:
                made = compiler.decode_carefully(cls, version, buffer, offset)
        except compiler.DECODE_FAILURES as error:
            compiler.raise_decode_error(cls, error)
        return made

    @classmethod
    def decode_prefix(cls, buffer: Buffer, version: int, offset: int = 0) -> Self:
        """Read one message from ``offset`` on, and ignore the bytes after it, which a newer version appended.

        Raises the same as `decode`.
        """
        decoder = cls._prefix_decoders.get(version) or compiler.make_decoder(cls, version, prefix=True)
        data = bytes(buffer)
        try:
            try:
                made: Self = decoder(data, offset)
            except UnicodeDecodeError:
                made = compiler.decode_carefully(cls, version, data, offset, prefix=True)
        except compiler.DECODE_FAILURES as error:
            compiler.raise_decode_error(cls, error)
        return made

    @classmethod
    def decode_within(
        cls, buffer: Buffer, version: int, offset: int = 0, *, max_memory: int, prefix: bool = False
    ) -> tuple[Self, int]:
        """As `decode`, or `decode_prefix`, but refuse a message whose decoded form would take too much memory.

        Returns the message, and how much memory its elements take.
        ``max_memory`` is bytes, more or less, beside those of ``buffer`` for text. The elements of an array
        are counted before they are made, by their number. Without this, a decoded message takes at most `MOST_MEMORY`
        times its bytes.

        Raises the same as `decode`; too large a message is a `ProtocolError`.
        """
        data = memoryview(buffer).cast("B")
        try:
            room = [max_memory]
            made: Self = compiler.decode_carefully(cls, version, data, offset, prefix=prefix, room=room)
            return made, max_memory - room[0]
        except compiler.DECODE_FAILURES as error:
            compiler.raise_decode_error(cls, error)

    def encode(self, version: int) -> bytes:
        """The whole message as bytes; records are copied into it.

        Raises:
            UnsupportedVersionError: there is no such version, or it cannot carry a value that is set.
            ProtocolError: a value does not fit its field's type; with the path of the field.
        """
        out: list[Buffer] = []
        self.encode_into(out, [], version)
        return b"".join(out)

    def encode_into(self, out: list[Buffer], marks: list[int], version: int) -> None:
        """Append the message in pieces to ``out``, and the positions of records and of large pieces to ``marks``.

        Raises the same as `encode`; ``out`` is then of no use.
        """
        try:
            encoder = self._encoders[version]
        except KeyError:
            encoder = compiler.make_encoder(type(self), version)
        try:
            encoder(self, out, marks)
        except compiler.ENCODE_FAILURES as error:
            compiler.raise_encode_error(type(self), version, error)


def join_parts(out: list[Buffer], marks: list[int]) -> list[Buffer]:
    """Join small pieces; keep those at ``marks`` as they are unless copying them is cheaper than one more buffer."""
    parts: list[Buffer] = []
    start = 0
    for mark in marks:
        if len(out[mark]) < MIN_PART_BYTES:
            continue
        if mark > start:
            parts.append(b"".join(out[start:mark]))
        parts.append(out[mark])
        start = mark + 1
    if start < len(out):
        parts.append(b"".join(out[start:]))
    return parts


class Response(Message):
    """An answer to a request with the same API key and version."""

    api_key: ClassVar[int]

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: str = "none", flexible: str = "none", unstable: str | None = None
    ) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible, unstable=unstable)
        cls.api_key = api_key


R = TypeVar("R", bound=Response, covariant=True)


class _ResponseType:
    def __get__(self, instance: object, owner: type[Request[R]]) -> type[R]:
        found = owner.find_response_type()
        type.__setattr__(owner, "response_type", found)  # used for every response
        return found


class Request(Message, Generic[R]):
    """A request; ``response_type`` is the class of its answer."""

    api_key: ClassVar[int]
    response_type = _ResponseType()

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: str = "none", flexible: str = "none", unstable: str | None = None
    ) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible, unstable=unstable)
        cls.api_key = api_key

    @classmethod
    def find_response_type(cls) -> type[R]:
        """The response class: the one of the same module with the matching name."""
        name = cls.__name__.removesuffix("Request") + "Response"
        return cast("type[R]", getattr(modules[cls.__module__], name))


__all__ = [
    "MOST_MEMORY", "Field", "Message", "Request", "Response", "Struct", "StructMeta", "VersionRange", "field",
    "iter_structs", "join_parts", "version_range",
]  # fmt: skip
