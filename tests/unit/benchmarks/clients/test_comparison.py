"""Taking turns."""

from __future__ import annotations

from benchmarks.clients.comparison import turns


def test_every_round_has_all_clients_and_begins_with_another() -> None:
    rounds = [turns(["a", "b", "c"], number) for number in range(4)]
    assert rounds == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_no_clients_take_no_turns() -> None:
    assert turns([], 3) == []
