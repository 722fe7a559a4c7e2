"""Faults of the broker, and the behaviour of the clients: the table of docs/testing.md.

`EXPECTED` has the results of the tests; `table` renders it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.support.waiting import until
from triokafka.testing.blocking import BlockingCluster

Happens = Callable[[BlockingCluster, str, str], object]


@dataclass(frozen=True)
class Row:
    """One fault, for producers or for consumers; ``call`` is its text on the page.

    The heartbeats are far apart, so that on a slow machine, too, it is the commit that meets the fault first.
    """

    call: str
    happens: Happens
    nodes: int = 1
    heartbeat_ms: int = 40_000


def _later(seconds: float, call: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def _freeze(cluster: BlockingCluster, topic: str, group: str) -> None:
    broker = cluster.broker(cluster.leader(topic))
    broker.freeze()
    _later(0.4, broker.thaw)


def _fill_disk(cluster: BlockingCluster, topic: str, group: str) -> None:
    cluster.fill_disk()
    _later(0.4, cluster.free_disk)


def _restart(*, clean: bool) -> Happens:
    def happens(cluster: BlockingCluster, topic: str, group: str) -> None:
        cluster.restart(cluster.leader(topic), clean=clean)

    return happens


def _tell_to_join(cluster: BlockingCluster, topic: str, group: str) -> None:
    cluster.fail_next("Heartbeat", "REBALANCE_IN_PROGRESS", group=group)
    until(lambda: not cluster.faults.armed, "no heartbeat met the fault")


def _say_out_of_range(cluster: BlockingCluster, topic: str, group: str) -> None:
    cluster.fail_next("Fetch", "OFFSET_OUT_OF_RANGE", topic=topic)
    # Clients that fetch in the background meet it after the last record; the others with the next call.
    for _ in range(50):
        if not cluster.faults.armed:
            break
        time.sleep(0.01)


PRODUCING: Final = {
    "refused": Row(
        '`fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")`',
        lambda c, topic, _: c.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic),
    ),
    "refused for good": Row(
        '`fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED")`',
        lambda c, topic, _: c.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=topic),
    ),
    "refused after the append": Row(
        '`fail_next("Produce", "REQUEST_TIMED_OUT", after_append=True)`',
        lambda c, topic, _: c.fail_next("Produce", "REQUEST_TIMED_OUT", topic=topic, after_append=True),
    ),
    "reply lost": Row('`drop_replies("Produce")`', lambda c, *_: c.drop_replies("Produce")),
    "reply late": Row(
        '`delay_replies("Produce", delay_ms=300)`', lambda c, *_: c.delay_replies("Produce", delay_ms=300)
    ),
    "closed before": Row('`close_on("Produce", at="before")`', lambda c, *_: c.close_on("Produce", at="before")),
    "closed after": Row('`close_on("Produce", at="after")`', lambda c, *_: c.close_on("Produce")),
    "cut": Row("`cut_connections()`", lambda c, *_: c.cut_connections()),
    "frozen": Row("`freeze()`, `thaw()` after 0.4 s", _freeze),
    "disk full": Row("`fill_disk()`, `free_disk()` after 0.4 s", _fill_disk),
    "restarted": Row("`restart()`", _restart(clean=True)),
    "killed and restarted": Row("`restart(clean=False)`", _restart(clean=False)),
    "leader moved": Row("`move_leader(topic)`", lambda c, topic, _: c.move_leader(topic), nodes=2),
}

CONSUMING: Final = {
    "refused": Row(
        '`fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER")`',
        lambda c, topic, _: c.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic),
    ),
    "out of range": Row(
        '`fail_next("Fetch", "OFFSET_OUT_OF_RANGE")`',
        _say_out_of_range,
    ),
    "told to join again": Row(
        '`fail_next("Heartbeat", "REBALANCE_IN_PROGRESS")`',
        _tell_to_join,
        heartbeat_ms=50,
    ),
    "cut": Row("`cut_connections()`", lambda c, *_: c.cut_connections()),
    "frozen": Row("`freeze()`, `thaw()` after 0.4 s", _freeze),
    "restarted": Row("`restart()`", _restart(clean=True)),
    "killed and restarted": Row("`restart(clean=False)`", _restart(clean=False)),
    "member expired": Row("`expire_member(group)`", lambda c, _, group: c.expire_member(group)),
    "clock put forward": Row("`advance_clock(60_000)`", lambda c, *_: c.advance_clock(60_000)),
    "leader moved": Row("`move_leader(topic)`", lambda c, topic, _: c.move_leader(topic), nodes=2),
    "coordinator moved": Row("`move_coordinator(group)`", lambda c, _, group: c.move_coordinator(group), nodes=2),
}

NAMES: Final = ("librdkafka", "kafka-python", "aiokafka", "triokafka")
_ONCE: Final = dict.fromkeys(NAMES, "there once")
_READS_ON: Final = dict.fromkeys(NAMES, "reads on")
# librdkafka and aiokafka are not idempotent by default (enable.idempotence).
_TWICE: Final = {**_ONCE, "librdkafka": "there twice", "aiokafka": "there twice"}
_COMMIT_FAILS: Final = {
    **dict.fromkeys(NAMES, "reads on, but may not commit: `CommitFailedError`"),
    "librdkafka": "reads on, but may not commit: `UNKNOWN_MEMBER_ID`",
}

EXPECTED_PRODUCING: Final[dict[str, dict[str, str]]] = {
    **dict.fromkeys(PRODUCING, _ONCE),
    "refused for good": {
        **dict.fromkeys(NAMES, "`TopicAuthorizationFailedError`, not there"),
        "librdkafka": "`TOPIC_AUTHORIZATION_FAILED`, not there",
    },
    "refused after the append": _TWICE,
    # aiokafka's time limit for a request is also the time limit for a record.
    "reply lost": {**_ONCE, "librdkafka": "there twice", "aiokafka": "`RequestTimedOutError`, there once"},
    "closed after": _TWICE,
}

EXPECTED_CONSUMING: Final[dict[str, dict[str, str]]] = {
    **dict.fromkeys(CONSUMING, _READS_ON),
    "out of range": dict.fromkeys(NAMES, "begins at `auto.offset.reset`"),
    "member expired": _COMMIT_FAILS,
    "clock put forward": _COMMIT_FAILS,
}


def table(rows: dict[str, Row], expected: dict[str, dict[str, str]]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [f"| fault | {' | '.join(NAMES)} |", "|---" * (len(NAMES) + 1) + "|"]
    for name, row in rows.items():
        cells = [expected[name][client] for client in NAMES]
        lines.append(f"| {row.call} | {' | '.join(cells)} |")
    return "\n".join(lines)
