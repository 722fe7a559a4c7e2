# Streaming decompressors of liblz4 and libzstd, given by their addresses.

ctypedef struct Input:
    const void* data
    size_t size
    size_t position

ctypedef struct Output:
    void* data
    size_t size
    size_t position

ctypedef size_t (*lz4_create)(void** context, unsigned int version) noexcept nogil
ctypedef size_t (*lz4_free)(void* context) noexcept nogil
ctypedef size_t (*lz4_decompress)(
    void* context, void* to, size_t* room, const void* data, size_t* size, const void* options
) noexcept nogil
ctypedef unsigned int (*is_error)(size_t code) noexcept nogil

ctypedef void* (*zstd_create)() noexcept nogil
ctypedef size_t (*zstd_free)(void* context) noexcept nogil
ctypedef size_t (*zstd_reset)(void* context, int what) noexcept nogil
ctypedef size_t (*zstd_set)(void* context, int parameter, int value) noexcept nogil
ctypedef size_t (*zstd_size)(const void* context) noexcept nogil
ctypedef size_t (*zstd_decompress)(void* context, Output* to, Input* data) noexcept nogil
