"""The newest offset of every key in the dirty part of a log, in a fixed number of bytes (H11, H12)."""

from __future__ import annotations

import hashlib
from struct import Struct
from typing import Final

ENTRY_BYTES: Final = 24
"""What one key takes, however long it is: a digest of 16 bytes and the offset."""

_DIGEST_BYTES: Final = 16
_ENTRY: Final = Struct(">16sq")
_OFFSET: Final = Struct(">q")
_EMPTY: Final = bytes(_DIGEST_BYTES)
_SPARSE: Final = 2  # slots for each key that is expected: probes stay short where memory is no matter
_MIN_SLOTS: Final = 3


class OffsetMap:
    """A hash table from keys to offsets that does not grow.

    Keys are kept as salted digests: two keys with the same digest would be taken for one, which nobody can bring about
    without knowing the salt. ``capacity`` keys fit; ``latest_offset`` is up to where the log was read, by whoever
    fills the map; -1 at first.

    Args:
        max_bytes: memory that it may take (``log.cleaner.dedupe.buffer.size`` of one thread).
        load_factor: how full it may get (``log.cleaner.io.buffer.load.factor``).
        expected: at most so many keys will come; less memory is taken then.
        salt: up to 16 unpredictable bytes.
    """

    def __init__(
        self, max_bytes: int, load_factor: float = 0.9, *, expected: int | None = None, salt: bytes = b""
    ) -> None:
        slots = max_bytes // ENTRY_BYTES
        if expected is not None:
            slots = min(slots, expected * _SPARSE)
        # A prime, so that every step goes through all slots before it comes back.
        self._slots = _largest_prime(max(slots, _MIN_SLOTS))
        self.capacity = max(1, min(int(self._slots * load_factor), self._slots - 1))
        self.latest_offset = -1
        self._table = bytearray(self._slots * ENTRY_BYTES)
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES, salt=salt[:16])

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        """How much of the capacity is used, 0 to 1."""
        return self._count / self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Remember the offset of ``key``, instead of the one known before. False: there is no room for another key."""
        position, digest = self._find(key)
        if digest is not None:
            if self._count >= self.capacity:
                return False
            self._count += 1
            _ENTRY.pack_into(self._table, position, digest, offset)
        else:
            _OFFSET.pack_into(self._table, position + _DIGEST_BYTES, offset)
        return True

    def get(self, key: bytes) -> int:
        """The offset of ``key``; -1 when it was not put."""
        position, digest = self._find(key)
        offset: int = -1 if digest is not None else _OFFSET.unpack_from(self._table, position + _DIGEST_BYTES)[0]
        return offset

    def _find(self, key: bytes) -> tuple[int, bytes | None]:
        """Where ``key`` is; or, with its digest, the empty slot where it would be."""
        digester = self._hash.copy()
        digester.update(key)
        digest = digester.digest()
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
    """The largest prime up to ``limit``, which is at least 3."""
    number = limit if limit % 2 else limit - 1
    while any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number -= 2
    return number
