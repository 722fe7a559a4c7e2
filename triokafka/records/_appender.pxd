# For other kernels: ``RecordAppender.append`` without the way through Python. The caller answers for ``appender`` being
# one.
cdef long long append_record(object appender, long long timestamp, object key, object value) except? -2
