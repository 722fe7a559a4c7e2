"""The newest offset of every key in the dirty part of a log, within a number of bytes.

There are two ways to keep it: `SmallOffsetMap`, a dictionary, is fast and takes ten times the memory; `LargeOffsetMap`
is a hash table in one piece of memory, for when that is what counts. `offset_map` picks.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from struct import Struct
from typing import Final

ENTRY_BYTES: Final = 24
"""What one key takes in a large map, however long it is: a digest of 16 bytes and the offset."""
SMALL_ENTRY_BYTES: Final = 240
"""What one key takes in a small map, at most: its bytes or digest, the offset, and their place in the dictionary."""

_DIGEST_BYTES: Final = 16
_LONGEST_KEY: Final = 48  # longer ones are kept as digests
_ENTRY: Final = Struct(">16sq")
_OFFSET: Final = Struct(">q")
_EMPTY: Final = bytes(_DIGEST_BYTES)
_MIN_SLOTS: Final = 3


class OffsetMap(ABC):
    """From keys to offsets. ``latest_offset`` is up to where the log was read, by whoever fills the map; -1 at first.

    Long keys are kept as salted digests: two keys with the same digest would be taken for one, which nobody can bring
    about without knowing the salt.
    """

    def __init__(self, salt: bytes) -> None:
        self.latest_offset = -1
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES, salt=salt[:16])

    @abstractmethod
    def __len__(self) -> int:
        """How many keys are known."""

    @property
    @abstractmethod
    def utilization(self) -> float:
        """How much of the memory is used, 0 to 1."""

    @abstractmethod
    def put(self, key: bytes, offset: int) -> bool:
        """Remember the offset of ``key``, instead of the one known before. False: there is no room for another key."""

    @abstractmethod
    def get(self, key: bytes) -> int:
        """The offset of ``key``; -1 when it was not put."""

    def _digest(self, key: bytes) -> bytes:
        digester = self._hash.copy()
        digester.update(key)
        return digester.digest()


def offset_map(max_bytes: int, load_factor: float, *, expected: int, salt: bytes) -> OffsetMap:
    """A map for up to ``expected`` keys.

    Args:
        max_bytes: memory that it may take (``log.cleaner.dedupe.buffer.size`` of one thread).
        load_factor: how full it may get (``log.cleaner.io.buffer.load.factor``).
        salt: up to 16 unpredictable bytes.
    """
    if expected * SMALL_ENTRY_BYTES <= max_bytes * load_factor:
        return SmallOffsetMap(max_bytes, salt=salt)
    return LargeOffsetMap(max_bytes, load_factor, expected=expected, salt=salt)


class SmallOffsetMap(OffsetMap):
    """A dictionary. Whoever makes it knows that all keys fit into ``max_bytes``: every key is taken."""

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
    """A hash table of fixed size, of which nothing is ever removed. ``capacity`` keys fit.

    Args:
        max_bytes: memory that it may take.
        load_factor: how full it may get.
        expected: at most so many keys will come; less memory is taken then.
        salt: up to 16 unpredictable bytes.
    """

    def __init__(
        self, max_bytes: int, load_factor: float = 0.9, *, expected: int | None = None, salt: bytes = b""
    ) -> None:
        super().__init__(salt)
        slots = max_bytes // ENTRY_BYTES
        if expected is not None:
            slots = min(slots, 2 * expected)  # probes stay short where memory is no matter
        # A prime, so that every step goes through all slots before it comes back.
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
        """Where ``key`` is; or, with its digest, the empty slot where it would be."""
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
    """The largest prime up to ``limit``, which is at least 3."""
    number = limit if limit % 2 else limit - 1
    while any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number -= 2
    return number
