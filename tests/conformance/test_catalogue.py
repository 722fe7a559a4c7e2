"""The execution of scenarios (`tests.conformance.catalogue`)."""

from __future__ import annotations

import gc
import weakref

from tests.conformance.catalogue import Case, Scenario, run
from tests.conformance.driver import ClientDriver, Refused


def test_client_of_a_failed_scenario_ends_without_a_garbage_collection() -> None:
    """A collection could run in the main thread, and the end of a client of librdkafka can wait in C code."""
    clients: list[weakref.ref[ClientDriver]] = []

    def connect() -> ClientDriver:
        client = ClientDriver("127.0.0.1:1", 0.0)
        clients.append(weakref.ref(client))
        return client

    def refuses(case: Case) -> None:
        def condition() -> bool:
            raise Refused(3, "no")

        case.until(condition)

    gc.disable()
    try:
        outcome = run(Scenario("area", "name", "claim", refuses, ""), Case, connect, 20)
        assert (outcome.state, outcome.code) == ("failed", 3)
        assert clients[0]() is None
    finally:
        gc.enable()
