# For other kernels: an exported buffer, and a column of byte strings.

from cpython.buffer cimport Py_buffer


cdef class Held:
    cdef Py_buffer view
    cdef bint holds
    cdef const char* data
    cdef Py_ssize_t size


cdef class Chunk:
    cdef int layout
    cdef Py_ssize_t length
    cdef Py_ssize_t offset
    cdef Py_ssize_t width
    cdef Held validity
    cdef Held starts
    cdef Held data
    cdef Held indices
    cdef list more
    cdef Chunk dictionary
    cdef object owner

    cdef int read(self, Py_ssize_t position, const char** data, Py_ssize_t* size) except -1
    cdef int view(self, const char* p, const char** data, Py_ssize_t* size) except -1
    cdef int part(
        self, Held held, long long start, long long length, const char** data, Py_ssize_t* size
    ) except -1


cdef class BytesColumn:
    cdef readonly list items
    cdef list chunks
    cdef list ends
    cdef Py_ssize_t length
    # The chunk that was read last, and its positions.
    cdef Chunk chunk
    cdef Py_ssize_t low
    cdef Py_ssize_t high

    cdef Py_ssize_t count(self) noexcept
    cdef int read(self, Py_ssize_t position, const char** data, Py_ssize_t* size) except -1
    cdef Py_ssize_t gather(
        self, Py_ssize_t start, Py_ssize_t count, const char** data, Py_ssize_t* sizes
    ) except -1
    cdef int seek(self, Py_ssize_t position) except -1
