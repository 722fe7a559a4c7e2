"""``docs/conformance.md`` shows exactly the stored results."""

from __future__ import annotations

from docs import conformance_page
from tests.conformance import results
from tests.conformance.catalogue import scenarios


def test_page_is_made_from_the_results() -> None:
    """`python -m tests.conformance.results` writes both, after `make interop`."""
    assert (conformance_page.DOCS / "conformance.md").read_text(encoding="utf-8") == conformance_page.page(
        results.stored()
    )


def test_results_are_of_the_scenarios_as_they_are() -> None:
    """A new or changed scenario must be run again before the page may show it."""
    stored = {name: one["digest"] for name, one in results.stored()["scenarios"].items()}
    assert stored == {one.name: one.digest for one in scenarios()}


def test_there_are_as_many_scenarios_as_were_requested() -> None:
    """Sixty, and thirty that pass with the Java client."""
    stored = results.stored()["scenarios"].values()
    passed = [one for one in stored if one["outcomes"]["triokafka"]["Java"][0] == "passed"]
    assert len(stored) >= 60 and len(passed) >= 30


def test_every_client_was_run_on_every_broker() -> None:
    for name, one in results.stored()["scenarios"].items():
        assert set(one["outcomes"]) == set(results.BROKERS), name
        for broker, outcomes in one["outcomes"].items():
            assert set(outcomes) == set(results.CLIENTS), f"{name} on {broker}"
            assert {outcome[0] for outcome in outcomes.values()} <= {"passed", "failed", "not offered"}


def test_our_broker_and_apache_kafka_failed_nowhere() -> None:
    for name, one in results.stored()["scenarios"].items():
        for broker in ("triokafka", "Apache Kafka"):
            assert all(outcome[0] != "failed" for outcome in one["outcomes"][broker].values()), f"{name} on {broker}"


def test_clients_lack_the_same_features_on_every_broker() -> None:
    """Otherwise a failure of a broker could look like a missing feature of a client."""
    for name, one in results.stored()["scenarios"].items():
        for client in results.CLIENTS:
            ours = one["outcomes"]["triokafka"][client][0] == "not offered"
            kafkas = one["outcomes"]["Apache Kafka"][client][0] == "not offered"
            assert ours == kafkas, f"{name} with {client}"


def test_every_scenario_passed_with_some_client() -> None:
    stored = results.stored()["scenarios"]
    assert len(stored) >= 60
    for name, one in stored.items():
        assert any(outcome[0] == "passed" for outcome in one["outcomes"]["triokafka"].values()), name
