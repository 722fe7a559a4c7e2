"""The codecs of record batches: gzip, snappy, lz4, zstd. Decompression is bounded; compression matches the Java client.

All but gzip need a package of the ``compression`` extra, imported at the first use of the codec.
"""

from __future__ import annotations

import importlib
import threading
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from triokafka.errors import ConfigurationError, CorruptRecordError, DecompressedSizeError, UnsupportedCodecError
from triokafka.structs import Buffer

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_IDS: Final = {name: number for number, name in enumerate(CODEC_NAMES)}
DEFAULT_MAX_DECOMPRESSED: Final = 128 * 1024 * 1024
"""Default limit on the decompressed size of one batch, in bytes."""
CHUNK_BYTES: Final = 64 * 1024
"""The largest chunk of `stream_chunks`, in bytes."""
_INPUT_BYTES: Final = 16 * 1024
"""The number of compressed bytes per call: some decompressors copy the unread rest at every call."""

_LEVELS: Final = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}  # KIP-390
_GZIP_DEFAULT_LEVEL: Final = -1
_LZ4_FAST_LEVEL: Final = 9  # Kafka's default: Java compresses with the fast mode there, and with HC at any other level
_ZSTD_DEFAULT_LEVEL: Final = 3

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable since version 1
_XERIAL_BLOCK: Final = 32 * 1024
_SNAPPY_MAX_RATIO: Final = 22  # the densest element copies 64 bytes and takes 3
_USUAL_RATIO: Final = 6


def codec_name(codec: int) -> str:
    """Return the name of a codec id; ``unknown`` for ids that Kafka does not define."""
    return CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else "unknown"


def codec_id(codec: int | str) -> int:
    """Return the id of a codec given by name or id.

    Raises:
        ConfigurationError: the codec does not exist.
    """
    number = CODEC_IDS.get(codec, -1) if isinstance(codec, str) else codec
    if not 0 <= number < len(CODEC_NAMES):
        raise ConfigurationError(f"compression codec {codec!r} is unknown: use one of {', '.join(CODEC_NAMES)}")
    return number


def check_codec(codec: int | str, level: int | None = None) -> int:
    """Check a codec, its level and its package, without compressing. Return the codec's id.

    Raises:
        ConfigurationError: the codec does not exist, or the level is out of its range.
        UnsupportedCodecError: the codec's package is missing.
    """
    if codec == "none" and level is None:
        return 0
    number = codec_id(codec)
    name = CODEC_NAMES[number]
    if level is not None:
        if name not in _LEVELS:
            raise ConfigurationError(f"compression {name} has no levels, got {level}")
        lowest, highest = _LEVELS[name]
        if not lowest <= level <= highest and not (name == "gzip" and level == _GZIP_DEFAULT_LEVEL):
            raise ConfigurationError(f"compression level {level} of {name} is not within {lowest} and {highest}")
    if name == "snappy":
        _module("cramjam", name)
    elif name == "lz4":
        _module("lz4.frame", name)
    elif name == "zstd":
        zstd_module()
    return number


def compress(codec: int | str, data: Buffer, level: int | None = None) -> bytes:
    """Compress ``data``. Levels as in KIP-390: gzip 1 to 9, lz4 1 to 17, zstd -131072 to 22; None is Kafka's default.

    Raises:
        ConfigurationError: the codec or level does not exist.
        UnsupportedCodecError: the codec's package is missing; the message names the one to install.
    """
    name = CODEC_NAMES[check_codec(codec, level)]
    if name == "gzip":
        compressor = _gzip_compressor(level)
        packed: bytes = compressor.compress(data) + compressor.flush()
        return packed
    if name == "snappy":
        return _compress_xerial(data)
    if name == "lz4":
        packed = _module("lz4.frame", name).compress(data, **_lz4_options(level), store_size=False)
        return packed
    if name == "zstd":
        return _compress_zstd(data, _ZSTD_DEFAULT_LEVEL if level is None else level)
    return bytes(data)


def compress_chunks(
    codec: int | str, chunks: Iterable[Buffer], level: int | None = None, *, most: int
) -> bytes | bytearray | None:
    """Compress chunks of data into one stream as `compress` does. Return None if it takes more than ``most`` bytes.

    Raises:
        ConfigurationError: the codec or level does not exist.
        UnsupportedCodecError: the codec's package is missing; the message names the one to install.
    """
    name = CODEC_NAMES[check_codec(codec, level)]
    source = iter(chunks)
    first, second = next(source, b""), next(source, None)
    if second is None:
        whole = compress(name, first, level)
        return whole if len(whole) <= most else None
    packed = bytearray()
    for part in _compress_stream(name, chain((first, second), source), level):
        packed += part
        if len(packed) > most:
            return None
    return packed


def _compress_stream(name: str, chunks: Iterable[Buffer], level: int | None) -> Iterator[Buffer]:
    if name == "gzip":
        compressor: Any = _gzip_compressor(level)
    elif name == "lz4":
        compressor = _module("lz4.frame", name).LZ4FrameCompressor(**_lz4_options(level))
        yield compressor.begin()
    elif name == "zstd":
        compressor = zstd_module().ZstdCompressor(_ZSTD_DEFAULT_LEVEL if level is None else level)
    else:
        yield from _compress_xerial_stream(chunks) if name == "snappy" else chunks
        return
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _gzip_compressor(level: int | None) -> Any:
    return zlib.compressobj(_GZIP_DEFAULT_LEVEL if level is None else level, zlib.DEFLATED, 31)


def _lz4_options(level: int | None) -> dict[str, Any]:
    # Frames as the Java client writes them.
    frame = _module("lz4.frame", "lz4")
    return {
        "compression_level": 0 if level is None or level == _LZ4_FAST_LEVEL else level,
        "block_size": frame.BLOCKSIZE_MAX64KB,
        "block_linked": False,  # Java's reader refuses linked blocks
    }


def decompress(codec: int | str, data: Buffer, *, max_size: int = DEFAULT_MAX_DECOMPRESSED, magic: int = 2) -> bytes:
    """Decompress ``data`` to at most ``max_size`` bytes; nothing larger is ever allocated.

    ``magic`` is the format version of the batch: v0 messages carry lz4 frames with Kafka's historical wrong header
    checksum.

    Raises:
        CorruptRecordError: the data is invalid for the codec, or cut short.
        DecompressedSizeError: larger than ``max_size``.
        UnsupportedCodecError: the codec's package is missing; the message names the one to install.
    """
    number = CODEC_IDS.get(codec, -1) if isinstance(codec, str) else codec
    name = codec_name(number)
    if name == "none":
        if len(data) > max_size:
            raise too_large(name, max_size)
        return bytes(data)
    if name == "gzip":
        return _decompress_stream(name, data, max_size, lambda: zlib.decompressobj(31), zlib.error)
    if name == "snappy":
        return b"".join(snappy_blocks(memoryview(data), max_size))
    if name == "lz4":
        frame = _module("lz4.frame", name)
        if magic == 0:
            data = _with_right_lz4_checksum(data)
        return _decompress_stream(name, data, max_size, frame.LZ4FrameDecompressor, RuntimeError)
    if name == "zstd":
        module = zstd_module()
        return _decompress_stream(name, data, max_size, module.ZstdDecompressor, module.ZstdError)
    raise CorruptRecordError(f"compression codec {codec!r} is unknown")


def _decompress_stream(name: str, data: Buffer, max_size: int, new: Any, error: type[Exception]) -> bytes:
    """Run a decompressor object over one or several concatenated streams."""
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    # Some packages allocate the whole limit of a call in advance: without steps, 128 MiB for a batch of 50 KB.
    step = max(CHUNK_BYTES, len(data) * _USUAL_RATIO)
    try:
        stream = new()
        while not stream.eof:
            part = stream.decompress(rest, min(max_size + 1 - size, step + size))
            size += len(part)
            if size > max_size:
                raise too_large(name, max_size)
            parts.append(part)
            if not stream.eof:
                # zlib returns the unread input; the other packages keep it.
                rest = getattr(stream, "unconsumed_tail", b"")
                if not part and not rest:
                    raise CorruptRecordError(f"{name} data ends too early")
        rest = stream.unused_data or b""
    except CorruptRecordError:
        raise
    except (error, EOFError, ValueError) as failure:
        raise CorruptRecordError(f"{name} data cannot be decompressed: {failure}") from failure
    if rest:
        parts.extend(stream_chunks(name, rest, max_size, new, error, size=size))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def stream_chunks(
    name: str, data: Buffer, max_size: int, new: Any, error: type[Exception], *, size: int = 0
) -> Iterator[bytes]:
    """Run a decompressor object over one or several concatenated streams; yield chunks of at most `CHUNK_BYTES`.

    Takes linear time for any number of streams. ``size`` bytes of ``max_size`` have come before.
    """
    view = memoryview(data)
    position = 0
    rest: Buffer = b""  # read from the data, but not decompressed yet
    try:
        stream = new()
        while True:
            if not rest and getattr(stream, "needs_input", True):
                # A stream that ends copies the rest of its input: a few kilobytes, not all of the data.
                rest = view[position : position + _INPUT_BYTES]
                position += len(rest)
            part = stream.decompress(rest, min(CHUNK_BYTES, max_size + 1 - size))
            size += len(part)
            if size > max_size:
                raise too_large(name, max_size)
            if part:
                yield part
            if stream.eof:
                rest = stream.unused_data or b""
                if not rest and position == len(view):
                    return
                stream = new()
                continue
            # zlib returns the input that it did not use; the others keep it.
            rest = getattr(stream, "unconsumed_tail", b"")
            if not part and not rest and position == len(view):
                raise CorruptRecordError(f"{name} data ends too early")
    except CorruptRecordError:
        raise
    except (error, EOFError, ValueError) as failure:
        raise CorruptRecordError(f"{name} data cannot be decompressed: {failure}") from failure


def snappy_blocks(data: memoryview, max_size: int) -> Iterator[bytes]:
    """Decompress the blocks of a snappy stream as Java writes it, or a single block without a stream header.

    Raises:
        CorruptRecordError: the data is damaged, or holds more than ``max_size`` bytes.
    """
    if bytes(data[:8]) != _XERIAL_MAGIC:
        yield _decompress_snappy_block(data, max_size)
        return
    size = 0
    position = 0
    while position < len(data):
        if bytes(data[position : position + 8]) == _XERIAL_MAGIC:  # concatenated streams repeat the header
            if len(data) - position < len(_XERIAL_HEADER):
                raise CorruptRecordError("snappy stream header is cut short")
            position += len(_XERIAL_HEADER)
            continue
        length = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if length > len(data) - position:
            raise CorruptRecordError(f"snappy block of {length} bytes, but only {len(data) - position} are left")
        part = _decompress_snappy_block(data[position : position + length], max_size - size, max_size)
        size += len(part)
        yield part
        position += length


def _decompress_snappy_block(data: memoryview, allowed: int, max_size: int | None = None) -> bytes:
    length = 0
    for index, byte in enumerate(data[:5]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            break
    else:
        raise CorruptRecordError("snappy block has no length")
    if length > allowed:
        raise too_large("snappy", allowed if max_size is None else max_size)
    if length > len(data) * _SNAPPY_MAX_RATIO:
        raise CorruptRecordError(f"snappy block of {len(data)} bytes claims to hold {length}")
    module = _module("cramjam", "snappy")
    try:
        return bytes(module.snappy.decompress_raw(data))
    except (module.DecompressionError, ValueError) as failure:
        raise CorruptRecordError(f"snappy data cannot be decompressed: {failure}") from failure


class _OwnCompressors(threading.local):
    """The zstd compressor of each thread. Creating one takes 10 microseconds, too much for a small batch."""

    level: int | None = None
    compressor: Any = None


_own: Final = _OwnCompressors()


def _compress_zstd(data: Buffer, level: int) -> bytes:
    compressor, known_level = _own.compressor, _own.level
    _own.compressor = None  # do not reuse a compressor that failed in the middle of a frame
    if compressor is None or known_level != level:
        compressor = zstd_module().ZstdCompressor(level)
        _own.level = level
    packed: bytes = compressor.compress(data, compressor.FLUSH_FRAME)
    _own.compressor = compressor
    return packed


def _compress_xerial(data: Buffer) -> bytes:
    with memoryview(data) as view:
        return b"".join(_compress_xerial_stream([view]))


def _compress_xerial_stream(chunks: Iterable[Buffer]) -> Iterator[bytes]:
    pack = _module("cramjam", "snappy").snappy.compress_raw
    yield _XERIAL_HEADER
    for chunk in chunks:
        with memoryview(chunk) as view:
            for start in range(0, len(view), _XERIAL_BLOCK):
                block = bytes(pack(view[start : start + _XERIAL_BLOCK]))
                yield len(block).to_bytes(4, "big")
                yield block


def _with_right_lz4_checksum(data: Buffer) -> bytes:
    """Fix the header checksum: in v0 messages Kafka wrote one that also covers the frame magic."""
    frame = bytearray(data)
    if len(frame) >= 7:
        at = 6 + (8 if frame[4] & 0x08 else 0)
        if at < len(frame):
            frame[at] = _xxh32_short(bytes(frame[4:at])) >> 8 & 0xFF
    return bytes(frame)


@lru_cache(maxsize=16)
def is_lz4_header(data: bytes) -> bool:
    """Return whether ``data`` is a whole lz4 frame header with a valid checksum."""
    return data[:4] == _LZ4_MAGIC and data[-1] == _xxh32_short(data[4:-1]) >> 8 & 0xFF


def _xxh32_short(data: bytes) -> int:
    """Return the xxHash32 (seed 0) of fewer than 16 bytes: a frame descriptor is no longer."""
    mask = 0xFFFFFFFF
    value = 374761393 + len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        value = value + int.from_bytes(data[start : start + 4], "little") * 3266489917 & mask
        value = (value << 17 | value >> 15) * 668265263 & mask
    for byte in data[whole:]:
        value = value + byte * 374761393 & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


def too_large(name: str, max_size: int) -> DecompressedSizeError:
    """Return the error for a batch that decompresses to more than its limit; ``name`` is the codec's."""
    return DecompressedSizeError(f"{name} data decompresses to more than the {max_size} bytes allowed for one batch")


def _module(name: str, codec: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise UnsupportedCodecError(
            f"compression {codec} needs the package {name.split('.')[0]}: pip install 'triokafka[compression]'"
        ) from missing


def zstd_module() -> Any:
    """Return the module with ``ZstdCompressor`` and ``ZstdDecompressor``. Raises `UnsupportedCodecError` without
    one."""
    try:
        return importlib.import_module("compression.zstd")  # Python 3.14 and newer
    except ImportError:
        return _module("backports.zstd", "zstd")
