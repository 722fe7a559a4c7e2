# liblz4's LZ4_decompress_safe, which is given by its address: (from, to, bytes there, room); the bytes, or below 0.
ctypedef int (*decompress_block)(const char* data, char* to, int size, int room) noexcept nogil
