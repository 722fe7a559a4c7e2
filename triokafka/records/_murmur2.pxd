# The hash that Kafka's clients use for keys (Java's ``Utils.murmur2``), inlined into the kernels that need it.

cdef inline unsigned int murmur2(const unsigned char* data, Py_ssize_t length) noexcept nogil:
    cdef unsigned int m = 0x5BD1E995
    cdef unsigned int h = <unsigned int>0x9747B28C ^ <unsigned int>length
    cdef unsigned int k
    while length >= 4:
        k = (
            data[0] | (<unsigned int>data[1] << 8) | (<unsigned int>data[2] << 16) | (<unsigned int>data[3] << 24)
        ) * m
        k ^= k >> 24
        h = (h * m) ^ (k * m)
        data += 4
        length -= 4
    if length:
        if length == 3:
            h ^= <unsigned int>data[2] << 16
        if length >= 2:
            h ^= <unsigned int>data[1] << 8
        h = (h ^ data[0]) * m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)
