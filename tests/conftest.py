"""What holds for all tests.

Examples of Hypothesis have no deadline, and may take long to make: on a busy machine any of them can, and what a test
says must not depend on that.

Signals that the caller ignores reach the processes that tests start.

A test that leaves threads, clients or processes running fails itself, instead of one of those that come after it.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.support.inherited_signals import heed_signals
from tests.support.left_behind import LeftBehind

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


def pytest_configure(config: pytest.Config) -> None:
    heed_signals()
    # Not as functions of this module: those are not told of fixtures of the session.
    config.pluginmanager.register(LeftBehind(), "left behind")
