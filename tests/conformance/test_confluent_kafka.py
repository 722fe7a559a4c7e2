"""The catalogue on our broker, through confluent-kafka."""

from __future__ import annotations

import pytest

from tests.conformance.catalogue import Outcome
from tests.conformance.confluent_driver import ConfluentDriver
from tests.conformance.on_our_broker import PARAMETERS, check, outcomes_on_our_broker

DRIVER = ConfluentDriver
outcomes = outcomes_on_our_broker


@pytest.mark.parametrize("name", PARAMETERS)
def test_our_broker_does_what_the_scenario_claims(name: str, outcomes: dict[str, Outcome]) -> None:
    check(outcomes[name])
