# Functions of liblz4, which are given by their addresses, and the C API's wait for a lock with a timeout.
from cpython.pythread cimport PyThread_type_lock

ctypedef size_t (*compress_frame)(void* to, size_t room, const void* data, size_t size, const void* how) noexcept nogil
ctypedef size_t (*frame_bound)(size_t size, const void* how) noexcept nogil

cdef extern from "pythread.h":
    int PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int interruptible) nogil
