"""The log messages of selected loggers, because other code of the process may log during a test."""

from __future__ import annotations

import pytest


def lines(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[str]:
    """Return the messages of ``loggers`` and of the loggers below them, in order."""
    return [
        record.getMessage()
        for record in caplog.records
        if any(record.name == name or record.name.startswith(f"{name}.") for name in loggers)
    ]
