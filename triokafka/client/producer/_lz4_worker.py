# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""A thread that compresses batches with lz4 and never needs the interpreter lock for it, to be compiled. Never imported
as Python (``triokafka.kernels``).

The twin, ``plain_lz4_worker``, has the same interface with types and docstrings. One lock protects the state that
thread and event loop share; each holds it only long enough to read or write a few numbers.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.pythread import (
    NOWAIT_LOCK,
    WAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memcpy
from cython.cimports.posix.unistd import write
from cython.cimports.triokafka.client.producer._lz4_library import (
    PyThread_acquire_lock_timed,
    compress_frame,
    frame_bound,
)
from cython.cimports.triokafka.records._arrow_buffers import Held

from triokafka.client.producer.plain_lz4_worker import MOST_JOBS

_MOST = cython.declare(cython.Py_ssize_t, MOST_JOBS)
_LOCKED = cython.declare(cython.int, 1)


@cython.final
@cython.cclass
class Lz4Worker:
    """Jobs in their order: each compresses part of a buffer in place."""

    _compress = cython.declare(compress_frame)
    _bound = cython.declare(frame_bound)
    # LZ4F_preferences_t as 32-bit numbers: independent blocks of 64 KiB, no checksums, no size.
    _how = cython.declare(cython.uint[14])
    _descriptor = cython.declare(cython.int)
    _held = cython.declare(list)
    # The lock protects all fields below. The first `_collected` jobs are collected, `_done` done, `_given` given.
    _mutex = cython.declare(PyThread_type_lock)
    _bell = cython.declare(PyThread_type_lock)
    _data = cython.declare(cython.p_char[16])
    _sizes = cython.declare(cython.Py_ssize_t[16])
    _rooms = cython.declare(cython.Py_ssize_t[16])
    _packed = cython.declare(cython.Py_ssize_t[16])
    _given = cython.declare(cython.Py_ssize_t)
    _done = cython.declare(cython.Py_ssize_t)
    _collected = cython.declare(cython.Py_ssize_t)
    _serving = cython.declare(cython.bint)
    _stopping = cython.declare(cython.bint)
    _sleeping = cython.declare(cython.bint)
    _rung = cython.declare(cython.bint)

    def __cinit__(self, compress: cython.size_t, bound: cython.size_t, descriptor: cython.int):
        self._compress = cython.cast(compress_frame, compress)
        self._bound = cython.cast(frame_bound, bound)
        self._descriptor = descriptor
        self._held = []
        self._how[0] = 4
        self._how[1] = 1
        self._mutex = PyThread_allocate_lock()
        self._bell = PyThread_allocate_lock()
        if self._mutex == cython.NULL or self._bell == cython.NULL:
            raise MemoryError
        PyThread_acquire_lock(self._bell, NOWAIT_LOCK)

    def __dealloc__(self):
        if self._mutex != cython.NULL:
            PyThread_free_lock(self._mutex)
        if self._bell != cython.NULL:
            PyThread_free_lock(self._bell)

    @property
    def serving(self):
        return bool(self._serving)

    def push(self, buffer, start: cython.Py_ssize_t, end: cython.Py_ssize_t):
        """Add a job. Return False, without effect, if there is no room or no thread is serving."""
        held: Held = Held(buffer, 0, True)
        taken: cython.bint = False
        slot: cython.Py_ssize_t
        if not 0 <= start <= end <= held.size:
            raise ValueError(f"bytes {start} to {end} of a buffer of {held.size}")
        PyThread_acquire_lock(self._mutex, WAIT_LOCK)
        if self._serving and not self._stopping and self._given - self._collected < _MOST:
            slot = self._given % 16
            self._data[slot] = cython.cast(cython.p_char, held.data) + start
            self._sizes[slot] = end - start
            self._rooms[slot] = held.size - start
            self._given += 1
            self._wake()
            taken = True
        PyThread_release_lock(self._mutex)
        if taken:
            self._held.append(held)
        return taken

    def finished(self):
        """Return the compressed sizes of the jobs done since the last call; -1 if a result did not fit its buffer."""
        sizes: list = []
        PyThread_acquire_lock(self._mutex, WAIT_LOCK)
        while self._collected < self._done:
            sizes.append(self._packed[self._collected % 16])
            self._collected += 1
        self._rung = False
        PyThread_release_lock(self._mutex)
        del self._held[: len(sizes)]
        return sizes

    def stop(self):
        """End `serve` after the current job."""
        PyThread_acquire_lock(self._mutex, WAIT_LOCK)
        self._stopping = True
        self._wake()
        PyThread_release_lock(self._mutex)

    def serve(self, idle: cython.double):
        """Do jobs, in a thread, until there has been none for ``idle`` seconds, or until `stop`."""
        PyThread_acquire_lock(self._mutex, WAIT_LOCK)
        self._serving = True
        PyThread_release_lock(self._mutex)
        with cython.nogil:
            self._run(cython.cast(cython.longlong, idle * 1e6))

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _wake(self) -> cython.void:
        if self._sleeping:
            self._sleeping = False
            PyThread_release_lock(self._bell)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _next(self, idle: cython.longlong) -> cython.bint:
        """Wait for a job, with the lock held before and after; False if the thread must end."""
        status: cython.int
        while self._done == self._given and not self._stopping:
            self._sleeping = True
            PyThread_release_lock(self._mutex)
            status = PyThread_acquire_lock_timed(self._bell, idle, 0)
            PyThread_acquire_lock(self._mutex, WAIT_LOCK)
            self._sleeping = False
            if status != _LOCKED and self._done == self._given:
                return False
        return not self._stopping

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _run(self, idle: cython.longlong) -> cython.void:
        scratch: cython.p_char = cython.NULL
        room: cython.size_t = 0
        needed: cython.size_t
        packed: cython.size_t
        data: cython.p_char
        size: cython.Py_ssize_t
        allowed: cython.Py_ssize_t
        result: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        ring: cython.bint
        PyThread_acquire_lock(self._mutex, WAIT_LOCK)
        while self._next(idle):
            slot = self._done % 16
            data = self._data[slot]
            size = self._sizes[slot]
            allowed = self._rooms[slot]
            PyThread_release_lock(self._mutex)
            result = -1
            needed = self._bound(size, cython.address(self._how[0]))
            if needed > room:
                free(scratch)
                scratch = cython.cast(cython.p_char, malloc(needed))
                room = needed if scratch != cython.NULL else 0
            if scratch != cython.NULL:
                packed = self._compress(scratch, room, data, size, cython.address(self._how[0]))
                # Errors are numbers larger than any size.
                if packed <= cython.cast(cython.size_t, allowed):
                    memcpy(data, scratch, packed)
                    result = packed
            PyThread_acquire_lock(self._mutex, WAIT_LOCK)
            self._packed[slot] = result
            self._done += 1
            ring = not self._rung
            self._rung = True
            PyThread_release_lock(self._mutex)
            if ring:
                write(self._descriptor, b"!", 1)
            PyThread_acquire_lock(self._mutex, WAIT_LOCK)
        self._serving = False
        PyThread_release_lock(self._mutex)
        free(scratch)
