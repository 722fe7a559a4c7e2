"""Unsigned variable-length integers (LEB128), as in Kafka's records and messages, and in Protobuf."""

from __future__ import annotations


def encode_uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    if value < 1 << 14:
        return bytes((value,) if value < 1 << 7 else (value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(0x80 | (value & 0x7F))
        value >>= 7
    out.append(value)
    return bytes(out)
