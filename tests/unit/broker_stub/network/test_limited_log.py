"""The limit for warnings that unauthenticated clients cause."""

from __future__ import annotations

import logging

import pytest
import trio

from triokafka.broker_stub.network.limited_log import LINES, SECONDS, LimitedLog
from triokafka.world.system import RealWorld

SUMMARY = "left out %d in %.0f s"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_flood_of_warnings_is_a_few_lines_and_a_summary(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Two thousand malformed connections wrote two thousand lines."""
    caplog.set_level(logging.INFO)
    limited = LimitedLog(logging.getLogger("strangers"), RealWorld(), SUMMARY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(limited.run)
        for number in range(2_000):
            limited.warn("bad %d", number)
        assert warnings(caplog) == [f"bad {number}" for number in range(LINES)]
        assert len(caplog.records) == 2_000, "the others are in a verbose log"
        await trio.sleep(SECONDS + 1)
        assert warnings(caplog)[LINES:] == [f"left out {2_000 - LINES} in {SECONDS:.0f} s"]
        limited.warn("next")
        assert warnings(caplog)[-1] == "next"
        nursery.cancel_scope.cancel()


async def test_few_warnings_have_no_summary(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    limited = LimitedLog(logging.getLogger("strangers"), RealWorld(), SUMMARY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(limited.run)
        for _ in range(3):
            for _ in range(LINES):
                limited.warn("bad")
            await trio.sleep(SECONDS)
        nursery.cancel_scope.cancel()
    assert warnings(caplog) == ["bad"] * 3 * LINES
