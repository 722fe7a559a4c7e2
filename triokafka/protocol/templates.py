"""Frames that are alike but for a few bytes: made once by the declared codec, then only filled in.

Who sends the same request again and again, with other records in it, and gets the same answer with other numbers, need
not walk the declaration each time. A template is derived from the codec's output for two examples, and refused when it
would not reproduce them; whatever does not look like the template goes through the codec as ever. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any, Final

from triokafka.errors import IllegalStateError
from triokafka.protocol.codec_runtime import write_uvarint
from triokafka.protocol.frames import encode_request, encode_response
from triokafka.protocol.message import Request, Response
from triokafka.structs import Buffer

_START: Final = Struct(">iii")
_SIZE: Final = Struct(">i")
_LARGE: Final = 1024
"""From here on records are a buffer of their own: one more costs less than copying them (as `join_parts` does it)."""
_EXAMPLES: Final = (b"0" * _LARGE, b"1" * 70_000)


class RequestTemplate:
    """Requests of one version and client that differ in one field of records, the last that is not empty.

    ``make`` makes such a request with given records. ``answer`` reads what usually comes back.
    """

    __slots__ = (
        "_around",
        "_before",
        "_behind",
        "_is_compact",
        "_key_and_version",
        "_last_length",
        "_last_size",
        "answer",
        "request_type",
        "version",
    )

    def __init__(
        self,
        make: Callable[[Buffer], Request[Any]],
        version: int,
        client_id: str | None,
        answer: AnswerTemplate | None = None,
    ) -> None:
        example = make(_EXAMPLES[0])
        self.request_type = type(example)
        self.version = version
        self.answer = answer
        self._is_compact = version in example.flexible
        self._last_size = -1
        self._last_length = b""
        frame = b"".join(encode_request(example, version=version, correlation_id=0, client_id=client_id))
        start = frame.index(_EXAMPLES[0])
        self._key_and_version = (example.api_key << 16) | version
        self._before = frame[_START.size : start - len(self._length(_LARGE))]
        self._behind = frame[start + _LARGE :]
        self._around = _START.size - _SIZE.size + len(self._before) + len(self._behind)
        for number, records in enumerate(_EXAMPLES):
            expected = encode_request(make(records), version=version, correlation_id=number, client_id=client_id)
            if b"".join(self.frame(number, records)) != b"".join(expected):
                raise IllegalStateError(f"{self.request_type.__name__} v{version} is not the same around any records")

    def _length(self, size: int) -> bytes:
        return write_uvarint(size + 1) if self._is_compact else _SIZE.pack(size)

    def frame(self, correlation_id: int, records: Buffer) -> list[Buffer]:
        """As `encode_request`: the frame as buffers to be sent in order. Large records are passed on uncopied."""
        size = len(records)
        if size != self._last_size:  # full batches of like records are often of one size
            self._last_size, self._last_length = size, self._length(size)
        length = self._last_length
        start = _START.pack(self._around + len(length) + size, self._key_and_version, correlation_id)
        if size < _LARGE:
            return [b"".join((start, self._before, length, records, self._behind))]
        if not self._behind:
            return [start + self._before + length, records]
        return [start + self._before + length, records, self._behind]


class FilledRequest:
    """A request made from a template. A connection accepts it in place of a message."""

    __slots__ = ("records", "template")

    def __init__(self, template: RequestTemplate, records: Buffer) -> None:
        self.template = template
        self.records = records


@cache
def _longs(count: int) -> Struct:
    return Struct(f">{count}q")


class AnswerTemplate:
    """Responses of one version that differ in a run of 64-bit integers. ``make`` makes such a response with them."""

    __slots__ = ("_behind", "_end", "_first", "_numbers", "_prefix", "_size", "_start", "make")

    def __init__(self, make: Callable[..., Response], version: int, count: int) -> None:
        self.make = make
        self._numbers = _longs(count)
        examples = [tuple(0x0102030405060700 * sign + place for place in range(count)) for sign in (1, -1)]
        frames = [
            b"".join(encode_response(make(*numbers), version=version, correlation_id=0))[_SIZE.size :]
            for numbers in examples
        ]
        self._size = len(frames[0])
        self._start = frames[0].index(self._numbers.pack(*examples[0]))
        self._end = self._start + self._numbers.size
        # The correlation id comes first, and is another each time.
        self._first = frames[0][_SIZE.size : self._start]
        self._behind = frames[0][self._end :]
        self._prefix = _SIZE.pack(self._size)
        if [self.read(frame) for frame in frames] != examples or [
            self.frame(0, numbers)[_SIZE.size :] for numbers in examples
        ] != frames:
            name = type(make(*examples[0])).__name__
            raise IllegalStateError(f"{name} v{version} is not the same around any numbers")

    def read(self, frame: Buffer) -> tuple[int, ...] | None:
        """Return the integers in a frame without its size, or None if the caller must decode it."""
        if (
            len(frame) == self._size
            and frame[_SIZE.size : self._start] == self._first
            and frame[self._end :] == self._behind
        ):
            return self._numbers.unpack_from(frame, self._start)
        return None

    def frame(self, correlation_id: int, numbers: tuple[int, ...]) -> bytes:
        """As `encode_response`: the frame of such a response, size prefix included."""
        return b"".join(
            (self._prefix, _SIZE.pack(correlation_id), self._first, self._numbers.pack(*numbers), self._behind)
        )


class FilledAnswer:
    """A response made from a template: what a handler may return in place of a message. It contains no error."""

    __slots__ = ("numbers", "template")

    def __init__(self, template: AnswerTemplate, numbers: tuple[int, ...]) -> None:
        self.template = template
        self.numbers = numbers

    def made(self) -> Response:
        """Return the response as a message."""
        return self.template.make(*self.numbers)


__all__ = ["AnswerTemplate", "FilledAnswer", "FilledRequest", "RequestTemplate"]
