# For other kernels: ``RecordAppender`` without the way through Python. The caller answers for ``appender`` being one.
cdef long long append_record(object appender, long long timestamp, object key, object value) except? -2

# The same from memory, with headers as they stand in a record. A size of -1 is null, no headers have size 0.
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

# As many of ``count`` records as fit, all with the same headers; ``timestamps`` (64-bit), if given, are of each.
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

# Headers as they stand in a record.
cdef bytes headers_in_record(object headers)
