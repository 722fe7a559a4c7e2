"""The catalogue on our broker, through aiokafka."""

from __future__ import annotations

import pytest

from tests.conformance.aiokafka_driver import AiokafkaDriver
from tests.conformance.catalogue import Outcome
from tests.conformance.on_our_broker import PARAMETERS, check, outcomes_on_our_broker

DRIVER = AiokafkaDriver
outcomes = outcomes_on_our_broker


@pytest.mark.parametrize("name", PARAMETERS)
def test_our_broker_does_what_the_scenario_claims(name: str, outcomes: dict[str, Outcome]) -> None:
    check(outcomes[name])
