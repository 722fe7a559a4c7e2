"""The log cleaner: keeps the last record of every key in logs whose ``cleanup.policy`` has ``compact``.

`cleaner_pass.CleanerPass` is one pass over one log, without any waiting, imported when there is something to clean;
`LogCleaner` decides which log is next, drives the passes and keeps the books.
"""

from __future__ import annotations

from triokafka.broker_stub.log.cleaner.cleanable_range import CleanableRange, cleanable_range
from triokafka.broker_stub.log.cleaner.log_cleaner import CleanerConfig, LogCleaner

__all__ = [
    "CleanableRange",
    "CleanerConfig",
    "LogCleaner",
    "cleanable_range",
]
