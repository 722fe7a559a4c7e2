"""Arrow columns of users, split into the buffers that the kernel reads. Copies no bytes.

Arrays of pyarrow know the sizes of their buffers. Those of any other library (polars, nanoarrow, …) come through the
Arrow C data interface (``__arrow_c_stream__`` or ``__arrow_c_array__``), where the size of a buffer follows from the
array's lengths and offsets. Their consistency is checked; only the exporter can guarantee that the memory exists.
No package is imported for either.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from triokafka.records.kernel import copy_integers
from triokafka.records.plain_arrow_buffers import (
    BINARY,
    DICTIONARY,
    FIXED,
    LARGE,
    NULLS,
    VIEW,
    BytesChunk,
    IntegerChunk,
    broken,
)
from triokafka.structs import Buffer

_LAYOUTS: Final = {"n": NULLS, "z": BINARY, "u": BINARY, "Z": LARGE, "U": LARGE, "vz": VIEW, "vu": VIEW}
_INTEGERS: Final = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "l": "q", "L": "Q"}
_MILLISECONDS: Final = {"tss": (1000, 1), "tsm": (1, 1), "tsu": (1, 1000), "tsn": (1, 1_000_000)}
"""Formats of timestamps: multiplier and divisor."""


def bytes_chunks(column: Any) -> list[BytesChunk]:
    """Return the chunks of an Arrow column of binary or string, of any layout, also dictionary-encoded.

    Raises:
        TypeError: the column has another type.
        ValueError: the buffers do not fit the type.
    """
    return [_bytes_chunk(part) for part in _parts(column)]


def integer_chunks(column: Any, *, timestamps: bool = False) -> list[IntegerChunk]:
    """Return the chunks of an Arrow column of integers, or (``timestamps``) also of timestamps, which are read as
    milliseconds.

    Raises:
        TypeError: the column has another type.
    """
    return [_integer_chunk(part, timestamps) for part in _parts(column)]


class _Part(NamedTuple):
    """Convert one array of either source; ``kind`` is the format string of the C data interface."""

    kind: str
    length: int
    offset: int
    buffers: Sequence[Buffer | None]
    dictionary: _Part | None
    owner: object

    def buffer(self, number: int) -> Buffer | None:
        return self.buffers[number] if number < len(self.buffers) else None


def _integer_chunk(part: _Part, timestamps: bool) -> IntegerChunk:
    unit = part.kind.partition(":")[0]
    scale = _MILLISECONDS.get(unit) if timestamps else None
    code = "q" if scale is not None else _INTEGERS.get(part.kind)
    if code is None or part.dictionary is not None:
        wanted = "integers or timestamps" if timestamps else "integers"
        raise TypeError(f"an Arrow array of type {part.kind!r} is not one of {wanted}")
    return IntegerChunk(
        code, part.length, part.offset, part.buffer(0), part.buffer(1), *(scale or (1, 1)), owner=part.owner
    )


def _bytes_chunk(part: _Part) -> BytesChunk:
    if part.dictionary is not None:
        entries = _bytes_chunk(part.dictionary)
        if entries.dictionary is not None:
            raise TypeError("an Arrow array has a dictionary of dictionaries: decode it first")
        numbers = _integer_chunk(part._replace(dictionary=None), False)
        indices = array("q", bytes(8 * max(part.length, 0)))
        wrong = copy_integers(numbers, indices, 0, null=-1, low=0, high=max(entries.length - 1, 0))
        if wrong >= 0 or (not entries.length and any(index >= 0 for index in indices)):
            raise broken(f"it names an entry that its dictionary of {entries.length} does not have")
        return BytesChunk(DICTIONARY, part.length, indices=memoryview(indices), dictionary=entries, owner=part.owner)
    width = 0
    layout = _LAYOUTS.get(part.kind)
    if part.kind.startswith("w:"):
        layout, width = FIXED, int(part.kind[2:])
    if layout is None:
        raise TypeError(f"an Arrow array of type {part.kind!r} is not one of binary or string")
    starts, data = part.buffer(1), part.buffer(2)
    more: list[Buffer] = []
    if layout == FIXED:
        starts, data = None, starts
    elif layout == VIEW:
        more, data = [buffer if buffer is not None else b"" for buffer in part.buffers[2:]], None
    return BytesChunk(
        layout, part.length, part.offset, part.buffer(0), starts, data, more=more, width=width, owner=part.owner
    )


def _parts(column: Any) -> Iterator[_Part]:
    if type(column).__module__.partition(".")[0] == "pyarrow" and hasattr(column, "type"):
        for chunk in getattr(column, "chunks", [column]):
            yield _pyarrow_part(chunk)
    elif hasattr(column, "__arrow_c_stream__"):
        yield from _stream_parts(column.__arrow_c_stream__())
    else:
        schema, data = column.__arrow_c_array__()
        yield _interface_part(
            _Schema.from_address(_address(schema, b"arrow_schema")),
            _Array.from_address(_address(data, b"arrow_array")),
            (schema, data),
        )


# -------------------------------------------------------------------- pyarrow


def _pyarrow_part(chunk: Any) -> _Part:
    if hasattr(chunk, "storage"):  # an extension type over its storage type
        chunk = chunk.storage
    entries = getattr(chunk, "dictionary", None)
    if entries is not None:
        return _pyarrow_part(chunk.indices)._replace(dictionary=_pyarrow_part(entries))
    capsule = chunk.type.__arrow_c_schema__()
    kind = _Schema.from_address(_address(capsule, b"arrow_schema")).format.decode()
    # A nested array lists the buffers of its children too. It is refused for its type, so they do not matter.
    return _Part(kind, len(chunk), chunk.offset, chunk.buffers(), None, chunk)


# -------------------------------------------------------------------- the C data interface


class _Schema(ctypes.Structure):
    """``ArrowSchema``."""


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.POINTER(_Schema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))),
    ("private_data", ctypes.c_void_p),
]


class _Array(ctypes.Structure):
    """``ArrowArray``; one that was made here is released with its last reference."""

    def __del__(self) -> None:
        if getattr(self, "made_here", False) and self.release:
            self.release(ctypes.byref(self))


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    """``ArrowArrayStream``."""

    _fields_ = (
        ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Schema))),
        ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Array))),
        ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _address(capsule: object, name: bytes) -> int:
    """Return the address of a capsule's struct, valid while the capsule lives. Raises `ValueError` for another
    capsule."""
    address: int = _capsule_pointer(capsule, name)
    return address


def _stream_parts(capsule: object) -> Iterator[_Part]:
    address = _address(capsule, b"arrow_array_stream")
    stream = _Stream.from_address(address)
    schema = _Schema()
    _check_call(stream, address, stream.get_schema(address, ctypes.byref(schema)))
    try:
        while True:
            made = _Array()
            _check_call(stream, address, stream.get_next(address, ctypes.byref(made)))
            if not made.release:
                return
            made.made_here = True
            yield _interface_part(schema, made, (made, capsule))
    finally:
        if schema.release:
            schema.release(ctypes.byref(schema))


def _check_call(stream: _Stream, address: int, code: int) -> None:
    if code:
        reason = stream.get_last_error(address)
        raise ValueError(f"the Arrow stream failed: {reason.decode(errors='replace') if reason else f'error {code}'}")


def _interface_part(schema: _Schema, data: _Array, owner: object) -> _Part:
    kind = schema.format.decode()
    length, offset = data.length, data.offset
    if length < 0 or offset < 0:
        raise broken(f"its length is {length}, its offset {offset}")
    entries = None
    if schema.dictionary:
        if not data.dictionary:
            raise broken("it has no dictionary")
        entries = _interface_part(schema.dictionary.contents, data.dictionary.contents, owner)
    sizes = _buffer_sizes(kind, offset + length, data)
    buffers = [_memory(data.buffers[number], size) for number, size in enumerate(sizes)]
    return _Part(kind, length, offset, buffers, entries, owner)


def _buffer_sizes(kind: str, end: int, data: _Array) -> list[int]:
    """Return the sizes of an array's buffers, most of which the interface does not state."""
    validity = (end + 7) // 8
    layout = _LAYOUTS.get(kind)
    if layout == NULLS:
        return []
    if layout in (BINARY, LARGE):
        _check_buffers(data, 3)
        width = 4 if layout == BINARY else 8
        offsets = _memory(data.buffers[1], (end + 1) * width) if data.length else None
        last = 0 if offsets is None else int.from_bytes(offsets[-width:], "little", signed=True)
        return [validity, 0 if offsets is None else len(offsets), max(last, 0)]
    if layout == VIEW:
        _check_buffers(data, 3)
        count = data.n_buffers - 3
        lengths = _memory(data.buffers[data.n_buffers - 1], 8 * count)
        return [validity, end * 16, *(lengths.cast("q") if lengths is not None else [0] * count)]
    code = _INTEGERS.get(kind, "q" if kind.partition(":")[0] in _MILLISECONDS else None)
    if code is None and not kind.startswith("w:"):
        return []  # the caller refuses the array for its type
    _check_buffers(data, 2)
    return [validity, end * (int(kind[2:]) if code is None else array(code).itemsize)]


def _check_buffers(data: _Array, needed: int) -> None:
    if data.n_buffers < needed or not data.buffers:
        raise broken(f"it has {data.n_buffers} buffers, not {needed}")


def _memory(address: int | None, size: int) -> memoryview | None:
    if not address:
        return None
    if size < 0:
        raise broken(f"a buffer has {size} bytes")
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")
