"""Settings of all tests.

Hypothesis has no deadline per example: on a busy machine any example can take long, and the result of a test must not
depend on that.

Processes that tests start react to signals, even if the caller of the tests ignores these.

The collector of reference cycles is off while the tests are collected, and afterwards skips the objects created by
then: otherwise each ``gc.collect()`` of a test would take most of a second.

The files that use a core for minutes begin first, because pytest-xdist gives a whole file to one worker.

A test that leaves threads, clients or processes running fails itself, instead of one of the tests after it. No client
of librdkafka waits in C code in the main thread, where no time limit could end the test.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.inherited_signals import heed_signals
from tests.support.left_behind import LeftBehind
from tests.support.librdkafka_calls import protect
from tests.support.time_limit import end_after_limit

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")
protect()


LONGEST = frozenset({"test_raft.py", "test_replication.py", "test_cluster_faults.py", "test_cluster_clocks.py"})


def pytest_configure(config: pytest.Config) -> None:
    heed_signals()
    end_after_limit()
    # Not as functions of this module: pytest does not report session fixtures to those.
    config.pluginmanager.register(LeftBehind(), "left behind")


def pytest_collection(session: pytest.Session) -> None:
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not (item.path.name in LONGEST and item.path.parent.name == "simulation"))


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture
def quiet_log() -> Iterator[None]:
    """Suppress the log, where thousands of simulated failures would cost more than the test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
