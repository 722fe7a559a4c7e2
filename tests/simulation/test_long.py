"""The long run of the simulated world: many more seeds than ``make test`` has time for (``make long``).

``TRIOKAFKA_LONG_SEEDS`` sets how many, ``TRIOKAFKA_LONG_FIRST`` where to begin. A failing seed is printed with its
reason and the run goes on; the test fails at the end, with all of them.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.test_group_through_faults import scenario
from triokafka.testing import run_simulation


@pytest.mark.long
@pytest.mark.timeout(0)
def test_thousands_of_seeds() -> None:
    first = int(os.environ.get("TRIOKAFKA_LONG_FIRST", "1000"))
    count = int(os.environ.get("TRIOKAFKA_LONG_SEEDS", "2000"))
    findings = []
    for number, seed in enumerate(range(first, first + count), start=1):
        try:
            run_simulation(scenario, seed)
        except Exception as error:
            findings.append(seed)
            print(f"seed {seed}: {error!r}", flush=True)
        if number % 100 == 0:
            print(f"{number} seeds run, {len(findings)} findings", flush=True)
    assert not findings, f"seeds with findings: {findings}"
