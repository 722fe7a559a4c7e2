"""Options of `AIOKafkaConsumer` that aiokafka accepts and the SDK's consumer does not."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from triokafka import Consumer
from triokafka.asyncio import AIOKafkaConsumer


def sdk_options(**options: Any) -> Any:
    """Return the options with which the SDK's consumer is constructed."""

    async def construct() -> Any:
        consumer = AIOKafkaConsumer(**options)
        await consumer.stop()
        return Consumer(**consumer._session.options).options

    return asyncio.run(construct())


@pytest.mark.parametrize("policy", ["earliest", "Latest", "NONE"])
def test_reset_policy_has_any_case(policy: str) -> None:
    assert sdk_options(auto_offset_reset=policy).auto_offset_reset == policy.lower()


def test_unknown_reset_policy_stands_for_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert sdk_options(auto_offset_reset="smallest").auto_offset_reset == "none"
    assert "auto_offset_reset='smallest' is unknown" in caplog.text


def test_broker_judges_a_session_that_is_shorter_than_the_heartbeats_interval() -> None:
    options = sdk_options(session_timeout_ms=300)
    assert (options.session_timeout_ms, options.heartbeat_interval_ms) == (300, 100)
    assert sdk_options(session_timeout_ms=3_001).heartbeat_interval_ms == 3_000
