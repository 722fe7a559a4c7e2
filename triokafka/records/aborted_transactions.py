"""The batches of a fetch that belong to aborted transactions. Only v2 batches can. Nothing here reads records, except
the record of a transaction marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from triokafka.records.batch import HEADER_SIZE, BatchInfo
from triokafka.records.kernel import ConsumerRecord, RecordOrigin, decode_payload, open_payload
from triokafka.structs import Buffer

_ABORT: Final = 0


class AbortedTransactions:
    """The aborted transactions of a fetch response, given as (producer id, first offset) (KIP-98).

    The caller passes the batches in order, because a transaction lasts until its marker. It must also pass batches that
    it does not return: a transaction may begin or end in them.
    """

    __slots__ = ("_later", "_open")

    def __init__(self, listed: Sequence[tuple[int, int]]) -> None:
        # those that begin after the last seen batch
        self._later = sorted(listed, key=lambda entry: entry[1], reverse=True)
        self._open: set[int] = set()  # producers with an open aborted transaction

    def cover(self, view: Buffer, info: BatchInfo) -> bool:
        """Return whether the next batch is part of one of them. A marker is not.

        Raises:
            CorruptRecordError: the record of a marker cannot be read.
        """
        if info.producer_id < 0:
            return False
        while self._later and self._later[-1][1] <= info.last_offset:
            self._open.add(self._later.pop()[0])
        if not info.is_control:
            return info.is_transactional and info.producer_id in self._open
        if _is_abort(view, info):
            self._open.discard(info.producer_id)
        return False


def _is_abort(view: Buffer, info: BatchInfo) -> bool:
    """Return whether a control batch is the marker of an aborted transaction."""
    data, position, end = open_payload(view, info.position + HEADER_SIZE, info.end)
    markers: list[ConsumerRecord] = []
    decode_payload(
        markers,
        1,
        data,
        position,
        end,
        0,
        info.record_count,
        -1,
        info.base_offset,
        info.last_offset_delta,
        info.base_timestamp,
        info.max_timestamp,
        RecordOrigin("", 0),
        0,
    )
    key = markers[0].key if markers else None
    return key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == _ABORT
