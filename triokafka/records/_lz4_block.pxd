# liblz4's LZ4_decompress_safe by address: (source, target, source size, target size); returns the size, or below 0.
ctypedef int (*decompress_block)(const char* data, char* to, int size, int room) noexcept nogil
