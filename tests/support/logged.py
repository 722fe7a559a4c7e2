"""What was logged, by whom: other code of the process may log while a test runs."""

from __future__ import annotations

import pytest


def lines(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[str]:
    """The messages of ``loggers`` and of those below them, in order."""
    return [
        record.getMessage()
        for record in caplog.records
        if any(record.name == name or record.name.startswith(f"{name}.") for name in loggers)
    ]
