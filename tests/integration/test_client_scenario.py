"""A service's work with our client, against the broker under test."""

from __future__ import annotations

from tests.support import client_scenario


async def test_our_client_does_a_services_work(bootstrap: str, topic: str, group: str) -> None:
    await client_scenario.run(bootstrap, topic, group)
