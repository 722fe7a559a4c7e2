# Parts of all record kernels, inlined into each: reading numbers, and recognising the usual forms of batches and
# records. Nothing here touches Python objects or allocates memory, and nothing reads past the given end.

ctypedef const unsigned char* Place


cdef inline int int32(Place p) noexcept nogil:
    return <int>((<unsigned int>p[0] << 24) | (<unsigned int>p[1] << 16) | (<unsigned int>p[2] << 8) | p[3])


cdef inline long long int64(Place p) noexcept nogil:
    return <long long>((<unsigned long long><unsigned int>int32(p) << 32) | <unsigned int>int32(p + 4))


cdef inline Place read_long_varint(Place p, Place end, int bits, unsigned long long* out) noexcept nogil:
    cdef unsigned long long byte
    cdef unsigned long long value = 0
    cdef int shift = 0
    while p < end and shift < bits:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            return NULL
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if bits == 32 and value >> 32:
                return NULL
            out[0] = value
            return p
        shift += 7
    return NULL


cdef inline Place read_varint(Place p, Place end, int bits, unsigned long long* out) noexcept nogil:
    """Read an unsigned varint of at most ``bits`` bits; return the place after it, or NULL if it is cut or too
    large."""
    if end - p >= 2:
        if p[0] < 128:
            out[0] = p[0]
            return p + 1
        if p[1] < 128:
            out[0] = (p[0] & 0x7F) | (<unsigned int>p[1] << 7)
            return p + 2
    return read_long_varint(p, end, bits, out)


cdef inline Place read_short_varint(Place p, unsigned int* out) noexcept nogil:
    """Read a varint of one or two bytes; return NULL if it is longer. The caller ensures that two bytes exist."""
    cdef unsigned int first = p[0]
    cdef unsigned int second
    if first < 128:
        out[0] = first
        return p + 1
    second = p[1]
    out[0] = (first & 0x7F) | (second << 7)
    return p + 2 if second < 128 else NULL


# Faults of a record; ``corruption.FAULTS`` has the texts. 0 is no fault.
cdef enum:
    CUT = 1
    LENGTH
    ORDER
    KEY_LENGTH
    VALUE_LENGTH
    HEADER_COUNT
    HEADER_LENGTH
    FILL


cdef struct Record:
    Place key
    Place value
    Place headers  # position of their count
    Place end
    long long key_size  # -1 is null
    long long value_size
    long long delta  # of the offset
    long long elapsed  # since the base timestamp


cdef inline bint read_short_record(Place p, Place stop, Record* record) noexcept nogil:
    """Read a record of the usual form: valid, all numbers of one or two bytes. Return False for any other form.

    The caller ensures that 16 bytes exist. The numbers up to the key's length are therefore read without comparisons;
    the check at the end shows whether they lay within the record.
    """
    cdef unsigned int size = 0
    cdef unsigned int elapsed = 0
    cdef unsigned int delta = 0
    cdef unsigned int raw = 0
    cdef Place end
    p = read_short_varint(p, &size)
    if p == NULL or (size >> 1) > stop - p:
        return False
    end = p + (size >> 1)
    p = read_short_varint(p + 1, &elapsed)  # the attributes byte before it is unused
    if p == NULL:
        return False
    p = read_short_varint(p, &delta)
    if p == NULL or (size | delta) & 1:
        return False
    p = read_short_varint(p, &raw)
    if p == NULL:
        return False
    record.key = p
    if raw == 1:
        record.key_size = -1
    else:
        record.key_size = raw >> 1
        p += raw >> 1
        if raw & 1:
            return False
    if end - p < 2:
        return False
    p = read_short_varint(p, &raw)
    if p == NULL:
        return False
    record.value = p
    if raw == 1:
        record.value_size = -1
    else:
        record.value_size = raw >> 1
        if raw & 1 or (raw >> 1) >= end - p:
            return False
        p += raw >> 1
    record.headers = p
    record.end = end
    record.delta = delta >> 1
    record.elapsed = <long long>(elapsed >> 1) ^ -<long long>(elapsed & 1)
    return True


cdef inline int read_long_record(Place p, Place stop, Record* record) noexcept nogil:
    """Read any record up to its headers. Return 0, or its fault."""
    cdef unsigned long long raw = 0
    cdef Place end
    p = read_varint(p, stop, 32, &raw)
    if p == NULL:
        return CUT
    if raw & 1 or raw >> 1 > <unsigned long long>(stop - p):
        return LENGTH
    end = p + (raw >> 1)
    if p == end:
        return CUT
    p = read_varint(p + 1, end, 64, &raw)
    if p == NULL:
        return CUT
    record.elapsed = <long long>((raw >> 1) ^ (0 - (raw & 1)))
    p = read_varint(p, end, 32, &raw)
    if p == NULL:
        return CUT
    if raw & 1:
        return ORDER
    record.delta = <long long>(raw >> 1)
    p = read_varint(p, end, 32, &raw)
    if p == NULL:
        return CUT
    record.key = p
    record.key_size = -1
    if raw != 1:
        if raw & 1 or raw >> 1 > <unsigned long long>(end - p):
            return KEY_LENGTH
        record.key_size = <long long>(raw >> 1)
        p += raw >> 1
    p = read_varint(p, end, 32, &raw)
    if p == NULL:
        return CUT
    record.value = p
    record.value_size = -1
    if raw != 1:
        if raw & 1 or raw >> 1 > <unsigned long long>(end - p):
            return VALUE_LENGTH
        record.value_size = <long long>(raw >> 1)
        p += raw >> 1
    record.headers = p
    record.end = end
    return 0


cdef inline int check_headers(Place p, Place end) noexcept nogil:
    """Return 0 if a list of headers fills the record to its end; reading them then needs no further checks."""
    cdef unsigned long long raw = 0
    cdef unsigned long long count = 0
    p = read_varint(p, end, 32, &count)
    if p == NULL:
        return CUT
    if count & 1 or count >> 2 > <unsigned long long>(end - p):  # a header has at least two bytes
        return HEADER_COUNT
    count >>= 1
    while count:
        p = read_varint(p, end, 32, &raw)
        if p == NULL or raw & 1 or raw >> 1 > <unsigned long long>(end - p):
            return HEADER_LENGTH
        p = read_varint(p + (raw >> 1), end, 32, &raw)
        if p == NULL:
            return HEADER_LENGTH
        if raw != 1:
            if raw & 1 or raw >> 1 > <unsigned long long>(end - p):
                return HEADER_LENGTH
            p += raw >> 1
        count -= 1
    return 0 if p == end else FILL


cdef inline Py_ssize_t ordinary_batch(
    Place p, Py_ssize_t available, long long limit, long long from_offset
) noexcept nogil:
    """Return the size of the batch at ``p`` if it has the usual form, else 0.

    The usual form: format v2, complete, neither compressed nor transactional nor control, with a possible record count
    (no record has fewer than 6 bytes), and no record below ``from_offset``.
    """
    cdef long long size, base_offset, last_delta, count
    if available < 61 or p[16] != 2:
        return 0
    size = <long long>int32(p + 8) + 12
    base_offset = int64(p)
    last_delta = int32(p + 23)
    count = int32(p + 57)
    if size < 61 or size > available or p[21] != 0 or (p[22] & 0xF7) != 0:
        return 0
    if count < 1 or count > limit or last_delta < count - 1 or count > (size - 61) // 6:
        return 0
    if base_offset < from_offset or base_offset >> 62:
        return 0
    return size
