"""The output of ``triokafka consume`` while no record arrives."""

from __future__ import annotations

import pytest

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
