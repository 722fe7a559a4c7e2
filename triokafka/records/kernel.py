"""The kernels that run: compiled, or their plain twins. Types are the twins'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triokafka import kernels

if TYPE_CHECKING:
    from triokafka.records.plain_appender import RecordAppender
    from triokafka.records.plain_arrow_buffers import BytesColumn, copy_integers, copy_numbers
    from triokafka.records.plain_columns import ColumnAppender, multiples
    from triokafka.records.plain_from_columns import RecordColumns, murmur2
    from triokafka.records.plain_kernel import (
        ConsumerRecord,
        RecordOrigin,
        decode_batches,
        decode_payload,
        open_payload,
    )
    from triokafka.records.plain_survey import survey_records
else:
    _rows = kernels.load("triokafka.records._kernel")
    ConsumerRecord = _rows.ConsumerRecord
    RecordOrigin = _rows.RecordOrigin
    decode_batches = _rows.decode_batches
    decode_payload = _rows.decode_payload
    open_payload = _rows.open_payload
    _columns = kernels.load("triokafka.records._columns")
    ColumnAppender = _columns.ColumnAppender
    multiples = _columns.multiples
    survey_records = kernels.load("triokafka.records._survey").survey_records
    RecordAppender = kernels.load("triokafka.records._appender").RecordAppender
    _buffers = kernels.load("triokafka.records._arrow_buffers")
    BytesColumn = _buffers.BytesColumn
    copy_integers = _buffers.copy_integers
    copy_numbers = _buffers.copy_numbers
    _from_columns = kernels.load("triokafka.records._from_columns")
    RecordColumns = _from_columns.RecordColumns
    murmur2 = _from_columns.murmur2

__all__ = [
    "BytesColumn",
    "ColumnAppender",
    "ConsumerRecord",
    "RecordAppender",
    "RecordColumns",
    "RecordOrigin",
    "copy_integers",
    "copy_numbers",
    "decode_batches",
    "decode_payload",
    "multiples",
    "murmur2",
    "open_payload",
    "survey_records",
]
