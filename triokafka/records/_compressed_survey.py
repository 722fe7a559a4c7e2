# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""The survey of a batch's records while they are decompressed, to be compiled. Never imported as Python.

The twin, ``plain_compressed_survey``, has the same interface with types and docstrings.

Decompressed bytes pass through a window of fixed size. A record that lies entirely in the window is read there, as in
``_survey``. Of a larger record the window holds one number at a time; its key and value are skipped.
"""

from __future__ import annotations

import threading

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memcmp, memcpy, memmove
from cython.cimports.triokafka.records._stream_libraries import (
    Input,
    Output,
    is_error,
    lz4_create,
    lz4_decompress,
    lz4_free,
    zstd_create,
    zstd_decompress,
    zstd_free,
    zstd_reset,
    zstd_set,
    zstd_size,
)
from cython.cimports.triokafka.records._wire import (
    CUT,
    FILL,
    HEADER_COUNT,
    HEADER_LENGTH,
    KEY_LENGTH,
    LENGTH,
    ORDER,
    VALUE_LENGTH,
    Record,
    check_headers,
    read_long_record,
    read_short_record,
    read_varint,
)

from triokafka.records.compression import codec_name, too_large
from triokafka.records.corruption import FAULTS, corrupt_batch, corrupt_record
from triokafka.records.plain_compressed_survey import CHUNK_BYTES, MAX_BLAMED, SurveyedRecords
from triokafka.records.stream import decompressed_chunks
from triokafka.records.stream_libraries import lz4_functions, zstd_functions

_CHUNK = cython.declare(cython.Py_ssize_t, CHUNK_BYTES)
_CARRY = cython.declare(cython.Py_ssize_t, 32 << 10)  # records up to this size are assembled in the window
# how far snappy elements refer back in the streams of all known writers
_HISTORY = cython.declare(cython.Py_ssize_t, 64 << 10)
_SLACK = cython.declare(cython.Py_ssize_t, 128)  # copies may write this many bytes too many
_WINDOW = cython.declare(cython.Py_ssize_t, 256 << 10)
_HELD = cython.declare(cython.longlong, 4 << 20)  # up to this limit the interpreter lock is not released
_KEPT_CONTEXT = cython.declare(cython.size_t, 4 << 20)  # a zstd context with larger buffers is freed after use
_MOST_HISTORY = cython.declare(cython.int, 23)  # 8 MiB, which every reader of zstd should support (RFC 8878)
_MOST_KEPT = cython.declare(cython.Py_ssize_t, 2)  # windows that are kept for the next batches

_STORED = cython.declare(cython.int, 0)
_CHUNKS = cython.declare(cython.int, 1)
_SNAPPY = cython.declare(cython.int, 2)
_LZ4 = cython.declare(cython.int, 3)
_ZSTD = cython.declare(cython.int, 4)

# Why decompression ended early.
_UNSURE = cython.declare(cython.int, 1)  # damaged, or a form that only `decompressed_chunks` reads
_BEYOND = cython.declare(cython.int, 2)  # more than the limit
_RAISED = cython.declare(cython.int, 3)  # `decompressed_chunks` has raised

_idle: list = []
_slow_path: object = threading.Lock()
"""Held while `decompressed_chunks` reads an unusual batch: a zstd frame with up to 128 MiB of history, or a snappy
block that refers back more than 64 KiB. Such batches need much memory, so one is checked at a time."""


@cython.final
@cython.cclass
class _Window:
    """The decompressed bytes of one batch at a time, and the decompressor."""

    room = cython.declare(cython.p_uchar)
    p = cython.declare(cython.p_const_uchar)
    stop = cython.declare(cython.p_const_uchar)
    total = cython.declare(cython.longlong)
    most = cython.declare(cython.longlong)
    source = cython.declare(cython.p_const_uchar)
    source_stop = cython.declare(cython.p_const_uchar)
    kind = cython.declare(cython.int)
    ended = cython.declare(cython.bint)
    broken = cython.declare(cython.int)
    context = cython.declare(cython.p_void)
    create_lz4 = cython.declare(lz4_create)
    free_lz4 = cython.declare(lz4_free)
    run_lz4 = cython.declare(lz4_decompress)
    is_lz4_error = cython.declare(is_error)
    zstd = cython.declare(cython.p_void)
    create_zstd = cython.declare(zstd_create)
    free_zstd = cython.declare(zstd_free)
    reset_zstd = cython.declare(zstd_reset)
    size_of_zstd = cython.declare(zstd_size)
    run_zstd = cython.declare(zstd_decompress)
    is_zstd_error = cython.declare(is_error)
    chunks = cython.declare(object)
    error = cython.declare(object)
    # snappy
    framed = cython.declare(cython.bint)
    blocks = cython.declare(cython.longlong)
    block_stop = cython.declare(cython.p_const_uchar)
    block_left = cython.declare(cython.longlong)
    block_done = cython.declare(cython.longlong)
    literal_left = cython.declare(cython.longlong)
    # records
    wants_key = cython.declare(cython.bint)
    earliest = cython.declare(cython.longlong)
    latest = cython.declare(cython.longlong)
    oldest = cython.declare(cython.longlong)
    newest = cython.declare(cython.longlong)
    keyless = cython.declare(cython.longlong)
    index = cython.declare(cython.longlong)
    refused = cython.declare(cython.longlong)
    untimely = cython.declare(cython.bint)
    blamed_index = cython.declare(cython.longlong[100])
    blamed_time = cython.declare(cython.longlong[100])
    blamed_key = cython.declare(cython.bint[100])
    record_end = cython.declare(cython.longlong)

    def __cinit__(self):
        self.context = cython.NULL
        self.zstd = cython.NULL
        self.room = cython.cast(cython.p_uchar, malloc(_WINDOW))
        if self.room == cython.NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.room)
        if self.zstd != cython.NULL:
            self.free_zstd(self.zstd)

    # -- the stream

    @cython.cfunc
    def open(self, kind: cython.int, source: cython.p_const_uchar, size: cython.Py_ssize_t, most: cython.longlong):
        self.p = self.stop = self.room
        self.total = 0
        self.most = most
        self.source = source
        self.source_stop = source + size
        self.kind = kind
        self.ended = False
        self.broken = 0
        self.error = None
        self.block_stop = source
        self.blocks = self.block_left = self.block_done = self.literal_left = 0
        if kind == _STORED:
            self.p = source
            self.stop = source + size
            self.total = size
            self.ended = True
            if size > most:
                self.broken = _BEYOND
        elif kind == _SNAPPY:
            self.framed = size >= 8 and memcmp(source, b"\x82SNAPPY\x00", 8) == 0
        elif kind == _LZ4:
            found = lz4_functions()
            self.create_lz4 = cython.cast(lz4_create, cython.cast(cython.size_t, found[0]))
            self.free_lz4 = cython.cast(lz4_free, cython.cast(cython.size_t, found[1]))
            self.run_lz4 = cython.cast(lz4_decompress, cython.cast(cython.size_t, found[2]))
            self.is_lz4_error = cython.cast(is_error, cython.cast(cython.size_t, found[3]))
            if self.create_lz4(cython.address(self.context), 100):
                self.context = cython.NULL
                raise MemoryError
        elif kind == _ZSTD:
            found = zstd_functions()
            self.create_zstd = cython.cast(zstd_create, cython.cast(cython.size_t, found[0]))
            self.free_zstd = cython.cast(zstd_free, cython.cast(cython.size_t, found[1]))
            self.reset_zstd = cython.cast(zstd_reset, cython.cast(cython.size_t, found[2]))
            self.size_of_zstd = cython.cast(zstd_size, cython.cast(cython.size_t, found[3]))
            self.run_zstd = cython.cast(zstd_decompress, cython.cast(cython.size_t, found[4]))
            self.is_zstd_error = cython.cast(is_error, cython.cast(cython.size_t, found[5]))
            if self.zstd == cython.NULL:
                self.zstd = self.create_zstd()
                if self.zstd == cython.NULL:
                    raise MemoryError
                # ZSTD_d_windowLogMax: frames with more history are left to `decompressed_chunks`.
                cython.cast(zstd_set, cython.cast(cython.size_t, found[6]))(self.zstd, 100, _MOST_HISTORY)

    @cython.cfunc
    def close(self):
        """Free the memory that the next batch does not need. The window refers to no part of this batch afterwards."""
        self.chunks = None
        self.error = None
        self.source = self.source_stop = self.p = self.stop = self.room
        if self.context != cython.NULL:
            self.free_lz4(self.context)
            self.context = cython.NULL
        if self.zstd != cython.NULL and self.kind == _ZSTD:
            if self.size_of_zstd(self.zstd) > _KEPT_CONTEXT:
                self.free_zstd(self.zstd)
                self.zstd = cython.NULL
            else:
                self.reset_zstd(self.zstd, 1)  # the session only

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def more(self) -> cython.bint:
        """Decompress more bytes behind the rest in the window. Return False at the end, or if the data is broken."""
        keep: cython.p_const_uchar
        left: cython.Py_ssize_t
        free_bytes: cython.Py_ssize_t
        got: cython.Py_ssize_t
        if self.ended or self.broken:
            return False
        free_bytes = _WINDOW - _SLACK - (self.stop - self.room)
        if self.kind != _SNAPPY:
            if self.p != self.room:
                left = self.stop - self.p
                memmove(self.room, self.p, left)
                self.p = self.room
                self.stop = self.room + left
                free_bytes = _WINDOW - _SLACK - left
        elif free_bytes < _CHUNK:
            keep = self.p
            if self.stop - keep < _HISTORY:
                keep = self.stop - _HISTORY
            left = self.stop - keep
            memmove(self.room, keep, left)
            self.p = self.room + (self.p - keep)
            self.stop = self.room + left
            free_bytes = _WINDOW - _SLACK - left
        if self.kind != _SNAPPY and free_bytes > self.most + 1 - self.total:  # a block of snappy states its length
            free_bytes = self.most + 1 - self.total
        if self.kind == _LZ4:
            got = self.more_lz4(free_bytes)
        elif self.kind == _ZSTD:
            got = self.more_zstd(free_bytes)
        elif self.kind == _SNAPPY:
            got = self.more_snappy(free_bytes)
        else:
            got = self.more_chunks()
        self.stop += got
        self.total += got
        if self.total > self.most:
            self.broken = _BEYOND
        return got > 0 and not self.broken

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def more_lz4(self, room: cython.Py_ssize_t) -> cython.Py_ssize_t:
        got: cython.size_t
        size: cython.size_t
        hint: cython.size_t
        while True:
            got = room
            size = self.source_stop - self.source
            hint = self.run_lz4(
                self.context,
                cython.cast(cython.p_void, self.stop),
                cython.address(got),
                self.source,
                cython.address(size),
                cython.NULL,
            )
            if self.is_lz4_error(hint):
                self.broken = _UNSURE
                return 0
            self.source += size
            if hint == 0 and self.source == self.source_stop:
                self.ended = True
                return got
            if got:
                return got
            if size == 0:
                self.broken = _UNSURE
                return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def more_zstd(self, room: cython.Py_ssize_t) -> cython.Py_ssize_t:
        into = cython.declare(Output)
        taken = cython.declare(Input)
        hint: cython.size_t
        while True:
            into.data = cython.cast(cython.p_void, self.stop)
            into.size = room
            into.position = 0
            taken.data = self.source
            taken.size = self.source_stop - self.source
            taken.position = 0
            hint = self.run_zstd(self.zstd, cython.address(into), cython.address(taken))
            if self.is_zstd_error(hint):
                self.broken = _UNSURE
                return 0
            self.source += taken.position
            if hint == 0 and self.source == self.source_stop:
                self.ended = True
                return into.position
            if into.position:
                return into.position
            if taken.position == 0:
                self.broken = _UNSURE
                return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def more_chunks(self) -> cython.Py_ssize_t:
        size: cython.Py_ssize_t = 0
        with cython.gil:
            try:
                size = self.take_chunk()
            except BaseException as error:  # raised again by `_survey`, which is no longer in C then
                self.error = error
                self.broken = _RAISED
        return size

    @cython.cfunc
    @cython.exceptval(-1)
    def take_chunk(self) -> cython.Py_ssize_t:
        view = cython.declare(Py_buffer)
        size: cython.Py_ssize_t
        chunk = next(self.chunks, None)
        if chunk is None:
            self.ended = True
            return 0
        PyObject_GetBuffer(chunk, cython.address(view), PyBUF_SIMPLE)
        size = view.len
        if size <= _CHUNK:
            memcpy(cython.cast(cython.p_void, self.stop), view.buf, size)
        PyBuffer_Release(cython.address(view))
        if size > _CHUNK:
            raise ValueError(f"a chunk has {size} bytes")
        return size

    # -- snappy

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def next_block(self) -> cython.bint:
        """Begin the next block of a snappy stream. Return False at the end, or if the data is broken."""
        size: cython.longlong
        length: cython.ulonglong = 0
        shift: cython.int = 0
        p: cython.p_const_uchar = self.source
        if self.framed:
            while self.source_stop - p >= 8 and memcmp(p, b"\x82SNAPPY\x00", 8) == 0:
                if self.source_stop - p < 16:
                    self.broken = _UNSURE
                    return False
                p += 16
            if p == self.source_stop:
                self.source = p
                self.ended = True
                return False
            if self.source_stop - p < 4:
                self.broken = _UNSURE
                return False
            size = (
                (cython.cast(cython.longlong, p[0]) << 24)
                | (cython.cast(cython.longlong, p[1]) << 16)
                | (cython.cast(cython.longlong, p[2]) << 8)
                | p[3]
            )
            p += 4
            if size > self.source_stop - p:
                self.broken = _UNSURE
                return False
        else:
            size = self.source_stop - p
        self.block_stop = p + size
        while True:
            if p == self.block_stop or shift > 28:
                self.broken = _UNSURE
                return False
            length |= cython.cast(cython.ulonglong, p[0] & 127) << shift
            shift += 7
            p += 1
            if p[-1] < 128:
                break
        if length > cython.cast(cython.ulonglong, self.most - self.total):
            self.broken = _BEYOND
            return False
        if length > cython.cast(cython.ulonglong, size) * 22:
            self.broken = _UNSURE
            return False
        self.blocks += 1
        self.block_left = length
        self.block_done = 0
        self.literal_left = 0
        self.source = p
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def more_snappy(self, room: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Decode elements until the room has less than 64 bytes, the longest possible copy."""
        start: cython.p_uchar = cython.cast(cython.p_uchar, self.stop)
        to: cython.p_uchar = start
        last: cython.p_uchar = start + room
        block_from: cython.p_uchar
        p: cython.p_const_uchar
        stop: cython.p_const_uchar
        tag: cython.uint
        offset: cython.Py_ssize_t
        length: cython.Py_ssize_t
        width: cython.Py_ssize_t
        while True:
            if self.source == self.block_stop and self.literal_left == 0:
                if self.block_left:
                    self.broken = _UNSURE
                    return 0
                if not self.framed and self.blocks:
                    self.ended = True
                    return to - start
                if not self.next_block():
                    # The bytes before a broken block do not matter: the batch is refused or read in another way.
                    return to - start
                # `total` grows when this returns, so the limit is checked block by block here.
                if self.block_left > self.most - self.total - (to - start):
                    self.broken = _BEYOND
                    return 0
            p = self.source
            stop = self.block_stop
            block_from = to
            while True:
                if self.literal_left:
                    length = last - to
                    if length > self.literal_left:
                        length = self.literal_left
                    memcpy(to, p, length)
                    p += length
                    to += length
                    self.literal_left -= length
                    if self.literal_left:
                        break
                if p == stop or last - to < 64:
                    break
                tag = p[0]
                p += 1
                if tag & 3 == 0:
                    length = (tag >> 2) + 1
                    if length <= 16 and stop - p >= 16:
                        if length > self.block_left - (to - block_from):
                            self.broken = _UNSURE
                            return 0
                        memcpy(to, p, 16)
                        p += length
                        to += length
                        continue
                    if length > 60:
                        width = length - 60
                        if stop - p < width:
                            self.broken = _UNSURE
                            return 0
                        length = p[0]
                        if width > 1:
                            length |= cython.cast(cython.Py_ssize_t, p[1]) << 8
                        if width > 2:
                            length |= cython.cast(cython.Py_ssize_t, p[2]) << 16
                        if width > 3:
                            length |= cython.cast(cython.Py_ssize_t, p[3]) << 24
                        length += 1
                        p += width
                    if length > stop - p or length > self.block_left - (to - block_from):
                        self.broken = _UNSURE
                        return 0
                    self.literal_left = length
                    continue
                if tag & 3 == 1:
                    if p == stop:
                        self.broken = _UNSURE
                        return 0
                    length = 4 + ((tag >> 2) & 7)
                    offset = (cython.cast(cython.Py_ssize_t, tag >> 5) << 8) | p[0]
                    p += 1
                elif tag & 3 == 2:
                    if stop - p < 2:
                        self.broken = _UNSURE
                        return 0
                    length = (tag >> 2) + 1
                    offset = cython.cast(cython.Py_ssize_t, p[0]) | (cython.cast(cython.Py_ssize_t, p[1]) << 8)
                    p += 2
                else:
                    if stop - p < 4:
                        self.broken = _UNSURE
                        return 0
                    length = (tag >> 2) + 1
                    offset = (
                        cython.cast(cython.Py_ssize_t, p[0])
                        | (cython.cast(cython.Py_ssize_t, p[1]) << 8)
                        | (cython.cast(cython.Py_ssize_t, p[2]) << 16)
                        | (cython.cast(cython.Py_ssize_t, p[3]) << 24)
                    )
                    p += 4
                if (
                    offset == 0
                    or offset > self.block_done + (to - block_from)
                    or offset > to - self.room
                    or length > self.block_left - (to - block_from)
                ):
                    self.broken = _UNSURE
                    return 0
                if offset >= 16:
                    memcpy(to, to - offset, 16)
                    if length > 16:
                        memcpy(to + 16, to + 16 - offset, 16)
                        if length > 32:
                            memcpy(to + 32, to + 32 - offset, 16)
                            memcpy(to + 48, to + 48 - offset, 16)
                    to += length
                elif offset >= 8:
                    for width in range(0, length, 8):
                        memcpy(to + width, to + width - offset, 8)
                    to += length
                else:
                    while length:
                        to[0] = (to - offset)[0]
                        to += 1
                        length -= 1
            self.source = p
            self.block_left -= to - block_from
            self.block_done += to - block_from
            if self.literal_left or p != stop:
                return to - start

    # -- records

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def position(self) -> cython.longlong:
        return self.total - (self.stop - self.p)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def has(self, size: cython.longlong) -> cython.bint:
        """Ensure that the window has ``size`` bytes (at most a carry and a few). Return False if it cannot."""
        while self.stop - self.p < size:
            if not self.more():
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def skip(self, size: cython.longlong) -> cython.bint:
        left: cython.longlong
        while True:
            left = self.stop - self.p
            if size <= left:
                self.p += size
                return True
            size -= left
            self.p = self.stop
            if not self.more():
                return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def number(self, bits: cython.int, out: cython.p_ulonglong) -> cython.bint:
        """Read a number of a record that is larger than the window."""
        size: cython.longlong = self.record_end - self.position()
        p: cython.p_const_uchar
        if size > 10:
            size = 10
        if not self.has(size):
            return False
        p = read_varint(self.p, self.p + size, bits, out)
        if p == cython.NULL:
            return False
        self.p = p
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def field(self, null: cython.bint, fault: cython.int, size: cython.p_longlong) -> cython.int:
        """Skip a length and that many bytes. Return 0, or the fault."""
        raw: cython.ulonglong = 0
        if not self.number(32, cython.address(raw)):
            return fault if fault == HEADER_LENGTH else CUT
        size[0] = -1
        if null and raw == 1:
            return 0
        if raw & 1 or cython.cast(cython.longlong, raw >> 1) > self.record_end - self.position():
            return fault
        size[0] = cython.cast(cython.longlong, raw >> 1)
        return 0 if self.skip(size[0]) else LENGTH

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def large_record(self, record: cython.pointer(Record)) -> cython.int:
        """Read a record that does not fit the window, and skip its key, value and headers."""
        raw: cython.ulonglong = 0
        count: cython.ulonglong = 0
        size: cython.longlong = 0
        fault: cython.int
        if not self.skip(1):
            return LENGTH
        if not self.number(64, cython.address(raw)):
            return CUT
        record.elapsed = cython.cast(cython.longlong, (raw >> 1) ^ (0 - (raw & 1)))
        if not self.number(32, cython.address(raw)):
            return CUT
        if raw & 1:
            return ORDER
        record.delta = cython.cast(cython.longlong, raw >> 1)
        fault = self.field(True, KEY_LENGTH, cython.address(record.key_size))
        if fault:
            return fault
        fault = self.field(True, VALUE_LENGTH, cython.address(record.value_size))
        if fault:
            return fault
        if record.delta != self.index:
            return ORDER
        if not self.number(32, cython.address(count)):
            return CUT
        if count & 1 or cython.cast(cython.longlong, count >> 2) > self.record_end - self.position():
            return HEADER_COUNT
        count >>= 1
        while count:
            fault = self.field(False, HEADER_LENGTH, cython.address(size))
            if fault:
                return fault
            fault = self.field(True, HEADER_LENGTH, cython.address(size))
            if fault:
                return fault
            count -= 1
        return 0 if self.position() == self.record_end else FILL

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def next_record(self, record: cython.pointer(Record)) -> cython.int:
        """Read a record of an unusual form, or one that is only partly in the window. Return 0, or the fault."""
        raw: cython.ulonglong = 0
        fault: cython.int
        p: cython.p_const_uchar
        self.has(5)
        p = read_varint(self.p, self.stop, 32, cython.address(raw))
        if p == cython.NULL:
            return CUT
        if raw & 1:
            return LENGTH
        raw >>= 1
        if raw > cython.cast(cython.ulonglong, _CARRY) and self.kind != _STORED:
            self.p = p
            self.record_end = self.position() + cython.cast(cython.longlong, raw)
            return self.large_record(record)
        self.has((p - self.p) + cython.cast(cython.longlong, raw))
        fault = read_long_record(self.p, self.stop, record)
        if fault:
            return fault
        if record.delta != self.index:
            return ORDER
        fault = check_headers(record.headers, record.end)
        self.p = record.end
        return fault

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def walk(self, count: cython.longlong, base_timestamp: cython.longlong) -> cython.int:
        """Read all records, or up to the first invalid one, and decompress the rest."""
        found = cython.declare(Record)
        timestamp: cython.longlong
        fault: cython.int = 0
        self.index = self.keyless = self.refused = self.record_end = 0
        self.oldest = self.newest = -1
        self.untimely = False
        while self.index < count:
            if (
                self.stop - self.p >= 16
                and read_short_record(self.p, self.stop, cython.address(found))
                and found.delta == self.index
                and found.end - found.headers == 1
                and found.headers[0] == 0
            ):
                self.p = found.end
            else:
                fault = self.next_record(cython.address(found))
                if fault:
                    break
            timestamp = cython.cast(
                cython.longlong,
                cython.cast(cython.ulonglong, base_timestamp) + cython.cast(cython.ulonglong, found.elapsed),
            )
            if timestamp > self.newest:
                self.newest = timestamp
            if timestamp != -1 and (self.oldest == -1 or timestamp < self.oldest):
                self.oldest = timestamp
            if found.key_size < 0:
                self.keyless += 1
            if (self.wants_key and found.key_size < 0) or (
                timestamp != -1 and (timestamp < self.earliest or timestamp > self.latest)
            ):
                self.blame(timestamp, self.wants_key and found.key_size < 0)
            self.index += 1
        return self.drain(fault)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def drain(self, fault: cython.int) -> cython.int:
        """Decompress the rest: a damaged or too large rest takes precedence over an invalid record."""
        left: cython.longlong = self.stop - self.p
        at: cython.longlong = self.total - left
        if fault == 0:
            self.record_end = at
        self.p = self.stop
        while self.more():
            self.p = self.stop
        if fault and self.record_end > self.total:
            return LENGTH
        return fault

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def blame(self, timestamp: cython.longlong, key: cython.bint) -> cython.void:
        if self.refused < 100:
            self.blamed_index[self.refused] = self.index
            self.blamed_time[self.refused] = timestamp
            self.blamed_key[self.refused] = key
        self.refused += 1
        if not key:
            self.untimely = True


@cython.cfunc
def _survey(
    window: _Window,
    data,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    codec: cython.int,
    kind: cython.int,
    count: cython.longlong,
    base_timestamp: cython.longlong,
    topic,
    partition,
    most: cython.longlong,
):
    view = cython.declare(Py_buffer)
    fault: cython.int
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        if start < 0 or start > end or end > view.len:
            raise ValueError("the payload lies outside of the buffer")
        if kind == _CHUNKS:
            window.chunks = decompressed_chunks(codec, memoryview(data)[start:end], max_size=most)
        window.open(kind, cython.cast(cython.p_const_uchar, view.buf) + start, end - start, most)
        if kind == _CHUNKS or most <= _HELD:
            fault = window.walk(count, base_timestamp)
        else:
            with cython.nogil:
                fault = window.walk(count, base_timestamp)
        if window.broken == _UNSURE:
            return None
        if window.broken == _BEYOND:
            raise too_large(codec_name(codec), most)
        if window.broken == _RAISED:
            error, window.error = window.error, None
            try:
                raise error
            finally:
                del error
        if fault:
            raise corrupt_record(topic, partition, 0, window.index, FAULTS[fault])
        if window.record_end != window.total:
            raise corrupt_batch(
                topic, partition, 0, f"{window.total - window.record_end} bytes follow its {count} records"
            )
        blamed: list = [
            (
                window.blamed_index[number],
                window.blamed_time[number],
                bool(window.blamed_key[number]),
            )
            for number in range(min(window.refused, MAX_BLAMED))
        ]
        return SurveyedRecords(
            window.oldest, window.newest, window.keyless, window.refused, bool(window.untimely), blamed
        )
    finally:
        window.close()
        PyBuffer_Release(cython.address(view))


def survey_compressed(
    data,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    codec: cython.int,
    count: cython.longlong,
    base_timestamp: cython.longlong,
    topic,
    partition,
    max_size: cython.longlong,
    earliest: cython.longlong,
    latest: cython.longlong,
    wants_key: cython.bint,
):
    """Walk ``count`` records of a batch while they are decompressed."""
    kind: cython.int = codec
    if codec not in (_STORED, _SNAPPY):
        functions = lz4_functions() if codec == _LZ4 else zstd_functions() if codec == _ZSTD else None
        if functions is None:
            kind = _CHUNKS
    try:
        window: _Window = _idle.pop()
    except IndexError:
        window = _Window()
    try:
        window.earliest = earliest
        window.latest = latest
        window.wants_key = wants_key
        found = _survey(window, data, start, end, codec, kind, count, base_timestamp, topic, partition, max_size)
        if found is None:
            if not _slow_path.acquire(blocking=max_size > _HELD):
                raise too_large(codec_name(codec), max_size)  # the event loop must not block: a thread starts over
            try:
                found = _survey(
                    window, data, start, end, codec, _CHUNKS, count, base_timestamp, topic, partition, max_size
                )
            finally:
                _slow_path.release()
        return found
    finally:
        if len(_idle) < _MOST_KEPT:
            _idle.append(window)
