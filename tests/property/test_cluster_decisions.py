"""The controller's decisions in random clusters: no committed record is lost, and every change keeps the invariants."""

from __future__ import annotations

import pytest

from tests.property.cluster_life import ClusterLife

SEEDS = 120
STEPS = 150


@pytest.mark.parametrize("with_elr", [True, False], ids=["elr", "no-elr"])
def test_invariants_hold_in_random_schedules_of_a_cluster(with_elr: bool) -> None:
    for seed in range(SEEDS):
        life = ClusterLife(seed, with_elr=with_elr)
        try:
            for _ in range(STEPS):
                life.step()
            life.finish()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {life.steps}, with_elr={with_elr}: {error}") from error
