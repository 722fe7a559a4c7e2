"""No damage to a file of one node of a cluster goes unreported, and the other nodes lose nothing."""

from __future__ import annotations

import pytest

from tests.hostile import cluster_damage
from tests.hostile.table import render

CHOSEN = {
    "__cluster_metadata-0/00000000000000000000.log": "refused",
    "orders-0/leader-epoch-checkpoint": "recovered",
    "__transaction_state-0/00000000000000000000.log": "recovered",
    "meta.properties": "refused",
}


def test_damage_on_one_node_is_recovered_from_the_others_or_refused() -> None:
    before = cluster_damage.prepare(clean=True)
    outcomes = {
        case.path.removeprefix("/data/"): cluster_damage.run(case, before, together=True)
        for case in cluster_damage.cases(before, clean=True, kinds=["removed"])
        if case.path.removeprefix("/data/") in CHOSEN
    }
    assert {path: outcome and outcome.kind for path, outcome in outcomes.items()} == CHOSEN, outcomes


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_damage_on_one_node_is_recovered_refused_or_reported() -> None:
    rows = list(cluster_damage.measure())
    print("\n" + render(rows))
    assert not [row for row in rows if not row.met]
