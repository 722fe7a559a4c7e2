"""The output of ``triokafka consume`` while no record arrives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from triokafka.cli.consume_run import ConsumedTopics, ConsumeRun
from triokafka.cli.consume_start import StartPosition
from triokafka.cli.formatters import make_formatter


@pytest.mark.parametrize(
    ("start", "more", "assigned", "expected"),
    [
        (
            ConsumedTopics("orders", None, None, None, waits=False),
            {},
            True,
            "waiting for new records of orders …; --from-beginning prints those that are there already",
        ),
        (
            ConsumedTopics("orders", None, 2, StartPosition("earliest"), waits=False),
            {},
            True,
            "waiting for records of orders, partition 2 …",
        ),
        (
            ConsumedTopics("orders", None, None, None, waits=False),
            {"group_id": "audit"},
            True,
            "waiting for new records of orders …",
        ),
        (
            ConsumedTopics(None, "ord.*", None, None, waits=False),
            {},
            False,
            "waiting for partitions of topics that match ord.* …",
        ),
        (
            ConsumedTopics("orders", None, None, None, waits=False),
            {"group_id": "audit"},
            False,
            "waiting for partitions of orders …; group audit has not assigned any to this consumer yet",
        ),
    ],
)
def test_line_names_the_awaited_records_or_partitions(
    start: ConsumedTopics, more: dict[str, str], assigned: bool, expected: str
) -> None:
    options = {"default_api_timeout_ms": 5_000, "auto_offset_reset": "latest", **more}
    run = ConsumeRun(start, options, make_formatter("default", {}), skips_errors=False)
    assert run._waiting(assigned=assigned) == expected


class _MemberWithoutPartitions:
    """A consumer whose group has assigned all partitions to others."""

    async def poll(self, *, timeout_ms: float, max_records: int | None) -> dict[Any, Any]:
        await trio.sleep(timeout_ms / 1000)
        return {}

    def assignment(self) -> set[Any]:
        return set()

    def health(self) -> Any:
        return SimpleNamespace(troubles=())


@pytest.mark.parametrize("until_end", [False, True])
def test_member_without_partitions_ends_after_the_timeout(until_end: bool) -> None:
    start = ConsumedTopics("orders", None, None, None, waits=False)
    options = {"default_api_timeout_ms": 5_000, "auto_offset_reset": "earliest", "group_id": "audit"}
    run = ConsumeRun(start, options, make_formatter("default", {}), skips_errors=False, until_end=until_end)
    consumer: Any = _MemberWithoutPartitions()

    async def main() -> float:
        began = trio.current_time()
        with trio.fail_after(60):
            await run._print_all(consumer, None, 20_000)
        return trio.current_time() - began

    assert trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)) == pytest.approx(20, abs=0.2)
