# For other kernels: ``RecordAppender`` without a Python call. The caller guarantees the type of ``appender``.
cdef long long append_record(object appender, long long timestamp, object key, object value) except? -2

# The same from memory, with encoded headers. A size of -1 is null; size 0 means no headers.
cdef long long append_bytes(
    object appender,
    long long timestamp,
    const char* key_data,
    Py_ssize_t key_size,
    const char* value_data,
    Py_ssize_t value_size,
    const char* header_data,
    Py_ssize_t header_size,
) except? -2

# Appends as many of ``count`` records as fit, with equal headers; ``timestamps`` (64-bit), if given, has one each.
cdef Py_ssize_t append_block(
    object appender,
    long long timestamp,
    const char* timestamps,
    Py_ssize_t count,
    const char** keys,
    Py_ssize_t* key_sizes,
    const char** values,
    Py_ssize_t* value_sizes,
    const char* header_data,
    Py_ssize_t header_size,
) except? -1

# Encoded headers of a record.
cdef bytes headers_in_record(object headers)
