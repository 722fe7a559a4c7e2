"""The kernels in use: compiled, or their plain twins. The types are the twins'.

Each kernel is loaded at the first use of one of its names: writing records loads no columnar code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from triokafka import kernels

if TYPE_CHECKING:
    from triokafka.records.plain_appender import RecordAppender
    from triokafka.records.plain_arrow_buffers import BytesColumn, copy_integers, copy_numbers
    from triokafka.records.plain_columns import ColumnAppender, multiples, time_beyond
    from triokafka.records.plain_compressed_survey import SurveyedRecords, survey_compressed
    from triokafka.records.plain_from_columns import RecordColumns, murmur2
    from triokafka.records.plain_kernel import (
        ConsumerRecord,
        RecordOrigin,
        decode_batches,
        decode_payload,
        open_payload,
    )
    from triokafka.records.plain_survey import survey_records

_RUNS: Final = kernels.implementation()  # decided once: all kernels run compiled, or none
_HOMES: Final = {
    "BytesColumn": "triokafka.records._arrow_buffers",
    "ColumnAppender": "triokafka.records._columns",
    "ConsumerRecord": "triokafka.records._kernel",
    "RecordAppender": "triokafka.records._appender",
    "RecordColumns": "triokafka.records._from_columns",
    "RecordOrigin": "triokafka.records._kernel",
    "copy_integers": "triokafka.records._arrow_buffers",
    "copy_numbers": "triokafka.records._arrow_buffers",
    "decode_batches": "triokafka.records._kernel",
    "decode_payload": "triokafka.records._kernel",
    "multiples": "triokafka.records._columns",
    "murmur2": "triokafka.records._from_columns",
    "open_payload": "triokafka.records._kernel",
    "SurveyedRecords": "triokafka.records._compressed_survey",
    "survey_compressed": "triokafka.records._compressed_survey",
    "survey_records": "triokafka.records._survey",
    "time_beyond": "triokafka.records._columns",
}

__all__ = [
    "BytesColumn",
    "ColumnAppender",
    "ConsumerRecord",
    "RecordAppender",
    "RecordColumns",
    "RecordOrigin",
    "SurveyedRecords",
    "copy_integers",
    "copy_numbers",
    "decode_batches",
    "decode_payload",
    "multiples",
    "murmur2",
    "open_payload",
    "survey_compressed",
    "survey_records",
    "time_beyond",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(home if _RUNS == "compiled" else kernels.TWINS[home])
        found = globals()[name] = getattr(module, name)
        return found
