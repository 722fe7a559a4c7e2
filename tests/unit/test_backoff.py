"""Waits that grow."""

from __future__ import annotations

from triokafka.backoff import Backoff


def test_each_wait_is_twice_the_one_before() -> None:
    assert [Backoff(0.1, 10.0).delay(failures, 0.5) for failures in (1, 2, 3, 4)] == [0.1, 0.2, 0.4, 0.8]


def test_chance_makes_a_wait_a_fifth_longer_or_shorter() -> None:
    backoff = Backoff(1.0, 10.0)
    assert backoff.delay(1, 0.0) == 0.8
    assert 1.19 < backoff.delay(1, 0.999) < 1.2


def test_no_wait_is_longer_than_the_longest() -> None:
    backoff = Backoff(1.0, 5.0)
    assert {backoff.delay(failures, 0.999) for failures in (4, 50, 10_000)} == {5.0}
    assert backoff.delay(10_000, 0.0) == 4.0
    assert Backoff(8.0, 2.0).delay(1, 0.5) == 2.0
