"""The results of the runs: written by the run against all brokers, stored in ``docs/conformance.json`` for the page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.conformance.catalogue import AREAS, Outcome, Scenario

ROOT: Final = Path(__file__).parents[2]
STORE: Final = ROOT / "docs" / "conformance.json"
"""The content of the page; written by ``python -m tests.conformance.results`` from the results of the last run."""
LAST_RUN: Final = ROOT / ".interop" / "conformance"
"""A file for each broker and client that the last ``make interop`` had."""

BROKERS: Final = ("triokafka", "noida-db", "Apache Kafka")
CLIENTS: Final = ("confluent-kafka", "kafka-python", "aiokafka", "Java")
KAFKA_VERSION: Final = "4.3.0"
NOT_OFFERED: Final = "not offered"


def write_run(broker: str, client: str, chosen: Iterable[Scenario], outcomes: Mapping[str, Outcome]) -> None:
    """Store the results of a client with a broker."""
    LAST_RUN.mkdir(parents=True, exist_ok=True)
    found = {
        one.name: {"digest": one.digest, "state": outcomes[one.name].state, "text": outcomes[one.name].text}
        for one in chosen
    }
    name = f"{broker}-{client}.json".replace(" ", "-")
    (LAST_RUN / name).write_text(json.dumps(found, indent=1), encoding="utf-8")


def _run(broker: str, client: str) -> dict[str, Any]:
    path = LAST_RUN / f"{broker}-{client}.json".replace(" ", "-")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def collect(catalogue: list[Scenario]) -> dict[str, Any]:
    """Return all results of the last run. Raises `KeyError` for a scenario that has changed since."""
    runs = {(broker, client): _run(broker, client) for broker in BROKERS for client in CLIENTS}
    scenarios = {}
    for one in catalogue:
        outcomes: dict[str, dict[str, list[str]]] = {broker: {} for broker in BROKERS}
        for (broker, client), run in runs.items():
            found = run[one.name]
            if found["digest"] != one.digest:
                raise KeyError(f"{one.name} has changed since it was run: make interop")
            theirs = runs["Apache Kafka", client][one.name]
            if theirs["state"] == NOT_OFFERED:
                # A broker that fails before the client is asked for what it does not offer has not failed in that.
                found = theirs
            outcomes[broker][client] = [found["state"], *([found["text"]] if found["text"] else [])]
        scenarios[one.name] = {"claim": one.claim, "digest": one.digest, "outcomes": outcomes}
    return {
        "areas": list(AREAS),
        "brokers": {"triokafka": "", "noida-db": version("noida-db"), "Apache Kafka": KAFKA_VERSION},
        "clients": {
            "confluent-kafka": version("confluent-kafka"),
            "kafka-python": version("kafka-python"),
            "aiokafka": version("aiokafka"),
            "Java": KAFKA_VERSION,
        },
        "scenarios": scenarios,
    }


def stored() -> dict[str, Any]:
    """Return the results from which the page is generated."""
    found: dict[str, Any] = json.loads(STORE.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Store the results of the last run, and generate the page."""
    from docs.conformance_page import write
    from tests.conformance.catalogue import scenarios

    STORE.write_text(_by_lines(collect(scenarios())), encoding="utf-8")
    write()


def _by_lines(found: dict[str, Any]) -> str:
    """Return JSON with one line per scenario, so that differences between runs are readable."""
    lines = [f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in found["scenarios"].items()]
    head = "".join(f" {json.dumps(key)}: {json.dumps(found[key])},\n" for key in found if key != "scenarios")
    return "{\n" + head + ' "scenarios": {\n' + ",\n".join(lines) + "\n }\n}\n"


if __name__ == "__main__":
    main()
