"""The checker of a reader's polls finds each anomaly in a small history that has it."""

from __future__ import annotations

import pytest

from tests.support.reader_history import Entry, ReaderHistory
from triokafka.structs import TopicPartition

PARTITION = TopicPartition("orders", 0)
LOG: dict[TopicPartition, list[Entry]] = {
    PARTITION: [(0, b"a"), (1, b"b"), (3, b"c"), (4, b"d")]
}  # offset 2 has no record


def anomalies(*polls: list[Entry], log: dict[TopicPartition, list[Entry]] = LOG) -> list[str]:
    """The kinds of the anomalies in a history of polls."""
    history = ReaderHistory()
    history.polls += [{PARTITION: entries} for entries in polls]
    return [line.split(":")[0] for line in history.anomalies(log)]


def test_polls_that_follow_the_log_have_no_anomaly() -> None:
    assert anomalies([(0, b"a"), (1, b"b")], [], [(3, b"c")]) == []


def test_record_between_two_polls_is_skipped() -> None:
    assert anomalies([(0, b"a")], [(3, b"c")]) == ["poll-skip"]


def test_record_within_a_poll_is_skipped() -> None:
    assert anomalies([(0, b"a"), (3, b"c")]) == ["poll-skip"]


def test_first_record_is_skipped() -> None:
    assert anomalies([(1, b"b")]) == ["poll-skip"]


def test_skipped_record_is_named_with_its_acknowledgement() -> None:
    history = ReaderHistory()
    history.polls.append({PARTITION: [(3, b"c")]})
    lines = history.anomalies(LOG, {(PARTITION, 1)})
    assert lines == [
        f"poll-skip: poll 0 passed the committed record of {PARTITION} at 0",
        f"poll-skip: poll 0 passed the acknowledged record of {PARTITION} at 1",
    ]


def test_poll_goes_backwards() -> None:
    assert anomalies([(0, b"a"), (1, b"b")], [(0, b"a"), (1, b"b")]) == ["nonmonotonic-poll"]


def test_offset_is_read_twice_in_a_row() -> None:
    assert anomalies([(0, b"a")], [(0, b"a")]) == ["nonmonotonic-poll"]


def test_value_is_read_at_two_offsets() -> None:
    log: dict[TopicPartition, list[Entry]] = {PARTITION: [(0, b"a"), (1, b"a")]}
    assert anomalies([(0, b"a")], [(1, b"a")], log=log) == ["duplicate"]


def test_final_log_has_another_value() -> None:
    assert anomalies([(0, b"a"), (1, b"x")]) == ["inconsistent-offsets"]


def test_final_log_has_nothing_at_an_offset_that_was_read() -> None:
    assert anomalies([(0, b"a"), (1, b"b"), (2, b"x"), (3, b"c"), (4, b"d"), (5, b"e")]) == ["inconsistent-offsets"] * 2


def test_offset_is_read_with_two_values() -> None:
    assert anomalies([(0, b"a")], [(0, b"x")]) == ["nonmonotonic-poll", "inconsistent-offsets"]


def test_check_raises_with_all_anomalies() -> None:
    history = ReaderHistory()
    history.polls.append({PARTITION: [(3, b"x")]})
    with pytest.raises(AssertionError, match="3 anomalies of the reader:\npoll-skip"):
        history.check(LOG)
