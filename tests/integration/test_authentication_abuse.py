"""Misuse of TLS and SASL with few connections; the full runs of `tests.hostile.authentication` are long."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.hostile import authentication
from tests.hostile.storm import allow_connections
from tests.hostile.table import Row, render

CONNECTIONS = 60
Case = Callable[[authentication.SecuredAccess, int], Iterator[Row]]


@pytest.fixture(scope="module")
def doors() -> Iterator[dict[bool, authentication.SecuredAccess]]:
    """Run one broker with TLS and one without, for all cases."""
    with authentication.secured_broker(tls=True) as secured, authentication.secured_broker(tls=False) as plain:
        yield {True: secured, False: plain}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("case", "tls"), authentication.CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_broker_survives_peers_that_misuse_authentication(
    case: Case, tls: bool, doors: dict[bool, authentication.SecuredAccess]
) -> None:
    allow_connections(CONNECTIONS)
    rows = list(case(doors[tls], CONNECTIONS))
    # Latency and memory per connection are meaningful only with many connections on an idle machine: see the full run.
    relevant = [row for row in rows if "good client" not in row.case and "memory" not in row.case]
    assert rows and all(row.met for row in relevant if "processor" not in row.case), render(rows)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_broker_survives_three_thousand_peers_that_misuse_authentication() -> None:
    rows = list(authentication.measure())
    print(render(rows))
    assert all(row.met for row in rows)
