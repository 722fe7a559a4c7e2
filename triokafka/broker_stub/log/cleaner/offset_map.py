"""Offset maps: the newest offset of every key in the dirty part of a log, within a memory limit.

`SmallOffsetMap`, a dictionary, is fast but takes ten times the memory. `LargeOffsetMap` is a compact hash table in one
block of memory. `offset_map` chooses between them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from struct import Struct
from typing import Final

ENTRY_BYTES: Final = 24
"""Bytes per key in a large map: a digest of 16 bytes and the offset, whatever the length of the key."""
SMALL_ENTRY_BYTES: Final = 240
"""The most bytes per key in a small map: the key or its digest, the offset, and the dictionary entry."""

_DIGEST_BYTES: Final = 16
_LONGEST_KEY: Final = 48  # longer keys are stored as digests
_ENTRY: Final = Struct(">16sq")
_OFFSET: Final = Struct(">q")
_EMPTY: Final = bytes(_DIGEST_BYTES)
_MIN_SLOTS: Final = 3


class OffsetMap(ABC):
    """A map from keys to offsets. The caller sets ``latest_offset``, the last offset that it has read; initially -1.

    Long keys are stored as salted digests. Two keys with the same digest would count as one key; an attacker cannot
    construct such keys without knowing the salt.
    """

    def __init__(self, salt: bytes) -> None:
        self.latest_offset = -1
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES, salt=salt[:16])

    @abstractmethod
    def __len__(self) -> int:
        """The number of keys."""

    @property
    @abstractmethod
    def utilization(self) -> float:
        """The share of the memory in use, 0 to 1."""

    @abstractmethod
    def put(self, key: bytes, offset: int) -> bool:
        """Set the offset of ``key``; return False when there is no room for another key."""

    @abstractmethod
    def get(self, key: bytes) -> int:
        """Return the offset of ``key``; -1 when the map does not have it."""

    def _digest(self, key: bytes) -> bytes:
        digester = self._hash.copy()
        digester.update(key)
        return digester.digest()


def offset_map(max_bytes: int, load_factor: float, *, expected: int, salt: bytes) -> OffsetMap:
    """Create a map for up to ``expected`` keys.

    Args:
        max_bytes: memory limit (``log.cleaner.dedupe.buffer.size`` divided by the number of threads).
        load_factor: the highest share of slots in use (``log.cleaner.io.buffer.load.factor``).
        salt: up to 16 unpredictable bytes.
    """
    if expected * SMALL_ENTRY_BYTES <= max_bytes * load_factor:
        return SmallOffsetMap(max_bytes, salt=salt)
    return LargeOffsetMap(max_bytes, load_factor, expected=expected, salt=salt)


class SmallOffsetMap(OffsetMap):
    """An offset map in a dictionary. It accepts every key: its creator makes sure that all keys fit into
    ``max_bytes``.
    """

    def __init__(self, max_bytes: int, *, salt: bytes = b"") -> None:
        super().__init__(salt)
        self._max_bytes = max_bytes
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        return len(self._offsets) * SMALL_ENTRY_BYTES / self._max_bytes if self._offsets else 0.0

    def put(self, key: bytes, offset: int) -> bool:
        self._offsets[key if len(key) <= _LONGEST_KEY else self._digest(key)] = offset
        return True

    def get(self, key: bytes) -> int:
        return self._offsets.get(key if len(key) <= _LONGEST_KEY else self._digest(key), -1)


class LargeOffsetMap(OffsetMap):
    """An offset map in a hash table of fixed size, without removal. It holds up to ``capacity`` keys.

    Args:
        max_bytes: memory limit.
        load_factor: the highest share of slots in use.
        expected: the highest number of keys; a lower number takes less memory.
        salt: up to 16 unpredictable bytes.
    """

    def __init__(
        self, max_bytes: int, load_factor: float = 0.9, *, expected: int | None = None, salt: bytes = b""
    ) -> None:
        super().__init__(salt)
        slots = max_bytes // ENTRY_BYTES
        if expected is not None:
            slots = min(slots, 2 * expected)  # half-empty, so that probe sequences stay short
        # With a prime number of slots, every step size visits all slots.
        self._slots = _largest_prime(max(slots, _MIN_SLOTS))
        self.capacity = max(1, min(int(self._slots * load_factor), self._slots - 1))
        self._table = bytearray(self._slots * ENTRY_BYTES)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        return self._count / self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        position, digest = self._find(key)
        if digest is None:
            _OFFSET.pack_into(self._table, position + _DIGEST_BYTES, offset)
            return True
        if self._count >= self.capacity:
            return False
        self._count += 1
        _ENTRY.pack_into(self._table, position, digest, offset)
        return True

    def get(self, key: bytes) -> int:
        position, digest = self._find(key)
        offset: int = -1 if digest is not None else _OFFSET.unpack_from(self._table, position + _DIGEST_BYTES)[0]
        return offset

    def _find(self, key: bytes) -> tuple[int, bytes | None]:
        """Return the slot of ``key`` and None; or, if it is absent, the empty slot for it and its digest."""
        digest = self._digest(key)
        slots, table = self._slots, self._table
        number = hash(digest)
        slot = number % slots
        step = 0
        while True:
            position = slot * ENTRY_BYTES
            found = table[position : position + _DIGEST_BYTES]
            if found == digest:
                return position, None
            if found == _EMPTY:
                return position, digest
            if not step:
                step = (number >> 24) % (slots - 1) + 1
            slot += step
            if slot >= slots:
                slot -= slots


def _largest_prime(limit: int) -> int:
    """Return the largest prime up to ``limit``, which is at least 3."""
    number = limit if limit % 2 else limit - 1
    while any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number -= 2
    return number
