"""Connections that die silently, over real sockets: the short form of ``python -m tests.hostile silence``."""

from __future__ import annotations

import pytest

from tests.hostile import silence
from tests.hostile.table import render


def test_every_wait_continues_when_its_connections_are_half_open() -> None:
    """The exact times are tested in virtual time (`tests.simulation.test_silence`), and in the long form."""
    rows = list(silence.measure(silence.SHORT, beside=False))
    assert len(rows) == len(silence.WORKS)
    assert not any(row.figure.startswith("over") for row in rows), render(rows)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_client_continues_within_the_limit_after_any_kind_of_silence() -> None:
    rows = list(silence.measure())
    print(render(rows))
    assert all(row.met for row in rows), render(rows)
