"""The table of the transaction benchmark."""

from __future__ import annotations

import pytest

from benchmarks import transaction_clients
from benchmarks.transactions import CLIENTS, JAVA, QUICK, CopyRow, Findings, Plan, Row, as_document, draw, plan_of, show

FOUND = Findings(
    [
        Row("triokafka", "triokafka", 1, 1000.0, 1.0, 0.5),
        Row("triokafka", "aiokafka", 1, 250.0, 4.0, 1.5),
        Row("Apache Kafka", "triokafka", 1, 200.0, 5.0, 2.5),
    ],
    [CopyRow("triokafka", "triokafka", 3.0, 9.0)],
    ["Java on triokafka: no copy within 120 s"],
)


def test_every_python_client_commits_and_copies() -> None:
    assert transaction_clients.RATES.keys() == transaction_clients.COPIES.keys() == set(CLIENTS) - {JAVA}


def test_quick_and_single_options_change_the_plan() -> None:
    assert plan_of([]) == Plan()
    assert plan_of(["--quick", "--client", "aiokafka", "--client", "Java"]) == QUICK._replace(
        clients=("aiokafka", "Java")
    )


def test_tables_have_every_row_and_failure(capsys: pytest.CaptureFixture[str]) -> None:
    show(FOUND)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-3:] for line in lines[1:4]] == [
        ["1,000.0", "1.00", "0.50"],
        ["250.0", "4.00", "1.50"],
        ["200.0", "5.00", "2.50"],
    ]
    assert lines[-1].strip() == FOUND.failures[0]
    assert len(as_document(FOUND)["rows"]) == 3


def test_the_plot_claims_the_time_on_our_broker() -> None:
    pytest.importorskip("matplotlib")
    assert draw(FOUND).get_suptitle() == (
        "A transaction with triokafka takes 1.00 ms; the fastest other client needs 4.00"
    )


def test_the_clock_counts_no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("benchmarks.transaction_clients.time.perf_counter", lambda: now[0])
    clock = transaction_clients.Clock(transaction_clients.RateJob("c", "b", "t", 1, True, warm_up=2, seconds=5.0))
    rounds = 0
    while clock.continues():
        rounds += 1
        now[0] += 1.0
    assert (rounds, clock.rate) == (7, 1.0)
