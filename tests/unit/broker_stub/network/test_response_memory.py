"""Large answers that clients do not read."""

from __future__ import annotations

from typing import Any

from triokafka.broker_stub.network.response_memory import ResponseMemory, bytes_in_memory


def test_oldest_answers_are_closed_when_there_are_too_many_bytes() -> None:
    """The newest is never closed: its client may just be about to read it."""
    closed: list[Any] = []
    unsent = ResponseMemory(100)
    for name in "abc":
        unsent.begin(name, 40, lambda reason, name=name: closed.append((name, reason)))  # type: ignore[misc]
    assert [name for name, _ in closed] == ["a"]
    assert "queued.max.response.bytes" in closed[0][1]
    unsent.begin("d", 500, lambda reason: closed.append(("d", reason)))
    assert [name for name, _ in closed] == ["a", "b", "c"]
    assert unsent.used == 500


def test_answer_that_was_sent_counts_no_more() -> None:
    """A second end does nothing."""
    closed: list[Any] = []
    unsent = ResponseMemory(100)
    unsent.begin("a", 60, closed.append)
    unsent.end("a")
    unsent.end("a")
    unsent.begin("b", 60, closed.append)
    assert (unsent.used, closed) == (60, [])


def test_without_a_limit_no_answer_is_closed() -> None:
    """-1 means none."""
    closed: list[Any] = []
    unsent = ResponseMemory(-1)
    for name in range(10):
        unsent.begin(name, 10**9, closed.append)
    assert not closed


def test_only_bytes_of_their_own_count() -> None:
    """Views of a log in memory use no memory of their own."""
    assert bytes_in_memory([b"123", bytearray(4), memoryview(bytes(1000))]) == 7
