"""No damage to a file of a broker goes unreported."""

from __future__ import annotations

import pytest
import trio

from tests.hostile import damage
from tests.hostile.table import render

ONE_OF = 29
"""How many of the cases there are for each one that the short form runs; a prime, so that all kinds and files come."""


def test_sampled_damage_is_recovered_refused_or_reported() -> None:
    outcomes = trio.run(damage.run_all, lambda number, case: number % ONE_OF == 0)
    assert len(outcomes) > 50
    assert {outcome.kind for outcome in outcomes.values()} >= {"recovered", "refused", "lost with a message"}
    silent = {case.name: outcome.detail for case, outcome in outcomes.items() if outcome.kind == "silent"}
    assert not silent


@pytest.mark.long
def test_every_damage_is_recovered_refused_or_reported() -> None:
    rows = list(damage.measure())
    print("\n" + render(rows))
    assert len([row for row in rows if row.limit == "none silent"]) > 30
    assert not [row for row in rows if not row.met]
