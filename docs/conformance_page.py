"""Makes ``docs/conformance.md`` from ``docs/conformance.json``, which holds what a run of all scenarios found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parent
_TITLES: Final = {
    "produce": "Producing",
    "codecs": "Compression",
    "consume": "Consuming",
    "offsets": "Offsets and deleting records",
    "groups": "Groups",
    "members": "Members of groups",
    "consumer_protocol": "The new consumer protocol",
    "topics": "Topics and the cluster",
    "configs": "Configuration",
    "cleaning": "Retention and compaction",
    "limits": "Limits and their error codes",
}
_LETTERS: Final = {"confluent-kafka": "C", "kafka-python": "K", "aiokafka": "A", "Java": "J"}


def results() -> dict[str, Any]:
    """Return the stored results of a run."""
    found: dict[str, Any] = json.loads((DOCS / "conformance.json").read_text(encoding="utf-8"))
    return found


def page(found: Mapping[str, Any]) -> str:
    """The whole page."""
    brokers, clients = found["brokers"], found["clients"]
    scenarios: Mapping[str, Any] = found["scenarios"]
    versions = ", ".join(f"{_LETTERS[name]}: {name} {version}" for name, version in clients.items())
    heads = [f"{name} {version}".strip() for name, version in brokers.items()]
    parts = [
        "<!-- Made by `python -m tests.conformance.results` from what `make interop` found; change the scenarios. -->",
        "# Conformance",
        "This page shows which Kafka clients work with triokafka's broker, case by case. "
        f"{len(scenarios)} scenarios, each written once, run with four clients ({versions}) on three brokers; "
        "`make interop` repeats them. A scenario requires only behaviour that Apache Kafka has, and therefore runs "
        "there, too. In the tables, a letter means that the scenario passed with that client, and a ~~struck-out~~ "
        "letter that it failed. A client without a letter lacks a feature that the scenario needs; its totals do not "
        "count the scenario.",
        "All brokers have the same settings, which shorten intervals, for example of retention and compaction. "
        "noida-db, a local server for tests that speaks several protocols, has no such settings: a scenario fails "
        "there if its effect takes longer than thirty seconds.",
        _table(["passed", *heads], [_totals(client, scenarios, brokers) for client in clients]),
    ]
    for area in found["areas"]:
        rows = [
            [one["claim"].replace("|", "\\|"), *(_cell(one["outcomes"][broker]) for broker in brokers)]
            for name, one in scenarios.items()
            if name.startswith(f"{area}/")
        ]
        parts += [f"## {_TITLES[area]}", _table(["scenario", *heads], rows)]
    parts += ["## Failures", "Each line has a scenario's name in `tests/conformance/scenarios` and the first error."]
    parts += [*_failures(scenarios, brokers), "## Missing features of clients", *_not_offered(scenarios, brokers)]
    return "\n\n".join(parts) + "\n"


def _totals(client: str, scenarios: Mapping[str, Any], brokers: Mapping[str, Any]) -> list[str]:
    row = [client]
    for broker in brokers:
        states = [one["outcomes"][broker][client][0] for one in scenarios.values()]
        offered = len(states) - states.count("not offered")
        row.append(f"{states.count('passed')} of {offered}")
    return row


def _cell(outcomes: Mapping[str, list[str]]) -> str:
    marks = {"passed": "{}", "failed": "~~{}~~"}
    return " ".join(
        marks[outcome[0]].format(_LETTERS[client]) for client, outcome in outcomes.items() if outcome[0] in marks
    )


def _failures(scenarios: Mapping[str, Any], brokers: Mapping[str, Any]) -> list[str]:
    found = []
    for broker in brokers:
        lines = []
        for name, one in scenarios.items():
            failed = {c: o[1] for c, o in one["outcomes"][broker].items() if o[0] == "failed"}
            if failed:
                text = next(iter(failed.values()))
                letters = " ".join(_LETTERS[client] for client in failed)
                lines.append(f"- {name} ({letters}): `{text.replace('`', chr(39))[:160]}`")
        found.append(f"{broker}: none." if not lines else f"{broker}:\n\n" + "\n".join(lines))
    return found


def _not_offered(scenarios: Mapping[str, Any], brokers: Mapping[str, Any]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    broker = next(iter(brokers))
    for name, one in scenarios.items():
        for outcome in one["outcomes"][broker].values():
            if outcome[0] == "not offered":
                reasons.setdefault(outcome[1], []).append(name)
    return ["\n".join(f"- {reason}: {', '.join(names)}" for reason, names in sorted(reasons.items()))]


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write() -> None:
    """Write the page."""
    (DOCS / "conformance.md").write_text(page(results()), encoding="utf-8")
