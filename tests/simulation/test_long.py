"""The long run of the simulated world: many more seeds than ``make test`` has time for (``make long``).

``TRIOKAFKA_LONG_SEEDS`` sets their number, ``TRIOKAFKA_LONG_FIRST`` the first one. A failing seed is printed with its
error, and the run continues; at the end the test fails with all of them.
"""

from __future__ import annotations

import functools
import os

import pytest

from tests.simulation.test_group_through_faults import scenario
from tests.support.simulated import run_seeds
from triokafka.testing import run_simulation


@pytest.mark.long
@pytest.mark.timeout(0)
def test_thousands_of_seeds() -> None:
    first = int(os.environ.get("TRIOKAFKA_LONG_FIRST", "1000"))
    count = int(os.environ.get("TRIOKAFKA_LONG_SEEDS", "2000"))
    run_seeds("group through faults", range(first, first + count), functools.partial(run_simulation, scenario))
