"""The catalogue on our broker: one process for each client, with all scenarios of the session at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.catalogue import SETTINGS, Outcome, run_all, scenarios
from tests.support.broker_process import broker_process

PARAMETERS = [one.name for one in scenarios()]
PATIENCE = 30.0


@pytest.fixture(scope="module")
def outcomes_on_our_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Outcome]]:
    """Return the outcomes of this session's scenarios, through the module's ``DRIVER``."""
    driver = request.module.DRIVER
    asked = {item.callspec.params["name"] for item in request.session.items if item.path == request.path}  # type: ignore[attr-defined]
    with broker_process(tmp_path_factory.mktemp("broker") / "data", settings=SETTINGS) as bootstrap:
        yield run_all([one for one in scenarios() if one.name in asked], lambda: driver(bootstrap, PATIENCE), PATIENCE)


def check(outcome: Outcome) -> None:
    """Fail with the scenario's error; a feature that a client lacks says nothing about the broker."""
    assert outcome.state in ("passed", "not offered"), f"{outcome.text}\n{outcome.trace}"
