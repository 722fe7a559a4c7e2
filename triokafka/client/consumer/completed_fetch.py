"""The records of one partition in one fetch response, decoded on demand."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from triokafka.errors import CorruptRecordError, KafkaError, UnsupportedCodecError
from triokafka.records import ConsumerRecord, RecordDecoder, iter_batches
from triokafka.records.batch import check_batch_crc
from triokafka.records.compression import DEFAULT_MAX_DECOMPRESSED
from triokafka.records.decompressor import Decompressor
from triokafka.structs import Buffer, TopicPartition

if TYPE_CHECKING:
    from triokafka.records.arrow import ArrowBuilder
    from triokafka.world import World

_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_INT32: Final = struct.Struct(">i")
_OVERHEAD: Final = 12
_EPOCH_AT: Final = 12
_MAGIC_AT: Final = 16
_LAST_DELTA_AT: Final = 23
_SMALLEST_LENGTH: Final = 14
_ALL: Final = sys.maxsize
INLINE_BYTES: Final = 4 << 20
"""Batches up to this size are decompressed in the event loop, in a few milliseconds; larger ones in a thread."""


def _last_batch(view: memoryview, most: int) -> int:
    """Return where the last whole batch of the first ``most`` begins, from the headers alone; -1 without one."""
    size = len(view)
    position, last = 0, -1
    while position + _MAGIC_AT < size and most:
        most -= 1
        _, length = _OFFSET_AND_LENGTH.unpack_from(view, position)
        if length < _SMALLEST_LENGTH or position + _OVERHEAD + length > size:
            break
        last = position
        position += _OVERHEAD + length
    return last


def _end_of_batch(view: memoryview, at: int) -> int | None:
    if at < 0:
        return None
    (offset, _) = _OFFSET_AND_LENGTH.unpack_from(view, at)
    if view[at + _MAGIC_AT] < 2:
        return int(offset) + 1
    return int(offset) + int(_INT32.unpack_from(view, at + _LAST_DELTA_AT)[0]) + 1


def end_of(records: Buffer, most: int = -1) -> int | None:
    """Return the offset after the last whole batch; None without one.

    Reads at most ``most`` batches, if that is not negative.
    Stops at invalid data: the decoder reports the damage.
    """
    view = memoryview(records)
    return _end_of_batch(view, _last_batch(view, most))


def is_cut(records: Buffer) -> bool:
    """Whether the records end within their first batch."""
    view = memoryview(records)
    if len(view) < _OVERHEAD:
        return True
    _, length = _OFFSET_AND_LENGTH.unpack_from(view)
    return bool(length >= _SMALLEST_LENGTH and _OVERHEAD + length > len(view))


class CompletedFetch:
    """The records of one partition in one fetch response, or the error in their place.

    ``version`` is that of the partition's state when the fetch was sent, ``position`` the offset of the next record to
    return, ``end`` the next offset to fetch (None if only decoding can find it), ``leader_epoch`` that of the last
    returned batch, ``last_epoch`` that of the last batch, -1 if unknown.
    """

    __slots__ = (
        "_check_crcs",
        "_decoder",
        "aborted",
        "decompressor",
        "done",
        "end",
        "error",
        "last_epoch",
        "leader_epoch",
        "max_decompressed",
        "partition",
        "position",
        "records",
        "size",
        "version",
    )

    def __init__(
        self,
        partition: TopicPartition,
        version: int,
        position: int,
        records: Buffer,
        *,
        aborted: Sequence[tuple[int, int]] | None = None,
        check_crcs: bool = True,
        error: KafkaError | None = None,
        decompressor: Decompressor | None = None,
        max_decompressed: int = DEFAULT_MAX_DECOMPRESSED,
    ) -> None:
        self.partition = partition
        self.version = version
        self.position = position
        self.records = records
        self.aborted = aborted
        self.error = error
        self.size = len(records)
        view = memoryview(records)
        last = _last_batch(view, -1) if error is None else -1
        self.end = _end_of_batch(view, last)
        self.last_epoch = -1
        if last >= 0 and view[last + _MAGIC_AT] >= 2:
            (self.last_epoch,) = _INT32.unpack_from(view, last + _EPOCH_AT)
        self.done = False
        self.decompressor = decompressor
        self.leader_epoch = -1
        self._check_crcs = check_crcs
        self.max_decompressed = max_decompressed
        """Limit on the decompressed size of one batch in bytes."""
        self._decoder = self.decoder(INLINE_BYTES)

    def decoder(self, inline_bytes: int = _ALL) -> RecordDecoder:
        """Return a new decoder for the remaining data; see `RecordDecoder` for ``inline_bytes``."""
        return RecordDecoder(
            self.records,
            topic=self.partition.topic,
            partition=self.partition.partition,
            from_offset=self.position,
            check_crc=self._check_crcs,
            aborted=self.aborted,
            decompressor=self.decompressor,
            max_decompressed=self.max_decompressed,
            inline_bytes=inline_bytes,
        )

    @property
    def is_waiting(self) -> bool:
        """Whether the next batch is too large for the calling task to decompress; see `unpack`."""
        return self._decoder.is_waiting

    @property
    def unpacked_bytes(self) -> int:
        """Total size in bytes of the batches decompressed so far."""
        return self._decoder.unpacked_bytes

    async def unpack(self, world: World) -> None:
        """Decompress the waiting batch in a thread. If it is damaged, the next call for records raises the error.

        If cancelled, the batch still waits.
        """
        decoder = self._decoder  # the position may jump meanwhile, which makes a new decoder
        try:
            payload = await world.run_in_thread(decoder.unpacking())
        except (CorruptRecordError, UnsupportedCodecError) as error:
            decoder.fail(error.with_traceback(None))
        else:
            decoder.supply(payload)

    def release(self) -> None:
        """Free a decompressed batch; the next call for records decompresses it again."""
        if self._decoder.holds_unpacked:
            self._decoder = self.decoder(INLINE_BYTES)

    def take(self, limit: int, most_bytes: int = _ALL) -> list[ConsumerRecord]:
        """Return the next records, at most ``limit``; an empty list at the end, and if `is_waiting`.

        Moves ``position``. For ``most_bytes`` see `RecordDecoder.take`.

        Raises:
            CorruptRecordError: with topic, partition and offset; ``position`` stays, and so does the error.
        """
        records = self._decoder.take(limit, most_bytes)
        self.position = self._decoder.next_offset
        self.leader_epoch = self._decoder.leader_epoch
        return records

    def take_columns(self, builder: ArrowBuilder, limit: int) -> int:
        """Add the next records, at most ``limit``, to an Arrow batch; return how many. Otherwise as `take`."""
        rows = builder.add(self._decoder, limit)
        self.position = self._decoder.next_offset
        self.leader_epoch = self._decoder.leader_epoch
        # Reading beyond the last record might decompress a batch that a full builder cannot take.
        if self._decoder.at_end or (not builder.is_full and self._decoder.exhausted):
            self.end = self.position
        return rows

    def check(self) -> int:
        """Verify checksums now, for a later decoder; return the number of bytes before the first invalid batch.

        Raises:
            CorruptRecordError: the first wanted batch is damaged.
        """
        if not self._check_crcs:
            return self.size
        view = memoryview(self.records)
        good = 0
        try:
            for batch in iter_batches(view):
                if batch.last_offset >= self.position:
                    check_batch_crc(view, batch)
                    good = batch.end
        except CorruptRecordError as error:
            if good:
                return good
            raise CorruptRecordError(f"{self.partition} at offset {self.position}: {error}") from None
        return self.size

    def behind_damage(self) -> int | None:
        """Return the offset behind the first batch that is not read or passed over, from its header; None if the header
        is damaged."""
        view = memoryview(self.records)
        # Aborted and control batches before the damaged one have not moved the position.
        read_to = max(self.position, self._decoder.next_offset)
        at = 0
        while (end := end_of(view[at:], most=1)) is not None:
            if end > read_to:
                return end
            at += _OVERHEAD + int(_OFFSET_AND_LENGTH.unpack_from(view, at)[1])
        return None

    def ends_before(self, offset: int) -> bool:
        """Whether no record is at ``offset`` or behind it, as the batches' headers say."""
        # In the oldest formats, the header of a compressed batch may have another offset.
        return self.end is not None and 0 <= self.end <= offset and self.records[_MAGIC_AT] >= 2

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left, as far as can be known without decoding."""
        return self.end is not None and self.position >= self.end

    def rewind(self, position: int) -> None:
        """Move back to ``position``, which earlier calls have passed."""
        self.position = position
        self._decoder = self.decoder(INLINE_BYTES)
