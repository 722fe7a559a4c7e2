"""A broker stays within its memory limit whatever unauthenticated clients send, and serves others meanwhile."""

from __future__ import annotations

import pytest

from tests.hostile.memory import Scale, cases, measure, run_case

SHORT = Scale(frame_bytes=20_000_000, few=2, many=6, expanded_bytes=100_000_000, seconds=0.5)
_PEAK = 300 << 20
_LEFT = 48 << 20


@pytest.mark.parametrize(
    "name", ["malformed 20 MB Produce at once", "zstd", "MB Metadata at once", "well-formed", "JoinGroup"]
)
def test_unauthenticated_clients_do_not_exhaust_the_memory(name: str) -> None:
    """Short runs of the hostile cases: the peak is bounded, and the memory is released afterwards."""
    (attack,) = (found for case, found in cases(SHORT) if name in case)
    before, peak, after, _ = run_case(attack, SHORT)
    assert peak < _PEAK
    assert after - before < _LEFT


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_hostile_memory_runs_keep_their_limits() -> None:
    """All cases at full size."""
    missed = [row for row in measure() if not row.met]
    assert not missed, missed
