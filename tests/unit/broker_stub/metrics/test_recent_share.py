"""The busy share of the last minute, from a total that only grows."""

from __future__ import annotations

import pytest

from triokafka.broker_stub.metrics.recent_share import RecentShare


def test_first_reading_covers_the_time_since_the_start() -> None:
    assert RecentShare(100.0).measure(5.0, 110.0) == pytest.approx(0.5)


def test_share_of_several_slots_is_that_of_their_time() -> None:
    assert RecentShare(0.0).measure(20.0, 10.0, of=8) == pytest.approx(0.25)


def test_old_time_is_forgotten_after_a_minute() -> None:
    share = RecentShare(0.0)
    for now in range(15, 1_000, 15):
        share.measure(0.0, float(now))
    assert share.measure(15.0, 1_005.0) == pytest.approx(15 / 60)
    assert share.measure(15.0 + 60.0, 1_065.0) > 0.99


def test_rare_readings_cover_the_time_between_them() -> None:
    share = RecentShare(0.0)
    share.measure(1_800.0, 3_600.0)
    assert share.measure(1_800.0, 7_200.0) == pytest.approx(0.0)


def test_readings_at_the_same_time_agree() -> None:
    """Two scrapers, or a scraper and the console, do not shorten each other's window."""
    share = RecentShare(0.0)
    share.measure(0.0, 30.0)
    assert share.measure(10.0, 40.0) == share.measure(10.0, 40.0) == pytest.approx(0.25)
    assert share.measure(10.0, 40.2) == pytest.approx(0.25, abs=0.01)


def test_no_time_is_no_load() -> None:
    assert RecentShare(5.0).measure(0.0, 5.0) == 0.0
