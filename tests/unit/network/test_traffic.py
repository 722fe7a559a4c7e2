"""When the traffic of a client is reported to its metrics."""

from __future__ import annotations

from triokafka.network.traffic import Traffic


def drained_at(*, every: float, until: float, closed_at: float | None = None, has_readers: bool = True) -> list[float]:
    """Send a request every ``every`` seconds; return when the metrics received the values."""
    traffic, drained, now = Traffic(), [], 0.0
    node = traffic.node(1, "")

    def drain() -> None:
        drained.append(now)
        node.sizes.clear()
        traffic.closed.clear()

    traffic.drain_to(drain, quiet_seconds=5.0, has_readers=has_readers)
    while now < until:
        now += every
        if closed_at is not None and now >= closed_at:
            traffic.closed.append(1.0)
            closed_at = None
        node.sent(100, now)
    return drained


def test_busy_client_reports_its_traffic_every_second() -> None:
    assert drained_at(every=0.03125, until=4.0) == [1.03125, 2.03125, 3.03125]


def test_quiet_client_reports_a_fifth_as_often() -> None:
    assert drained_at(every=0.5, until=11.0) == [5.5, 10.5]


def test_quiet_client_reports_an_ended_connection_within_a_second() -> None:
    assert drained_at(every=0.5, until=5.0, closed_at=2.0) == [2.5]


def test_client_without_readers_reports_an_ended_connection_with_its_requests() -> None:
    assert drained_at(every=0.5, until=6.0, closed_at=2.0, has_readers=False) == [5.5]
