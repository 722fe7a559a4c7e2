"""`RecordCursor`, compiled where that is faster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from triokafka import kernels

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from triokafka.records.plain_cursor import RecordCursor
else:
    RecordCursor = kernels.load("triokafka.records._cursor").RecordCursor

__all__ = ["RecordCursor"]
