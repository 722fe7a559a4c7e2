"""What requests cost: how many, of which version, how long in which phase, with which errors, under Kafka's names.

A request's life is cut into phases that add up to its total time: waiting for a handler slot, being worked on here
(local), waiting for others (remote: replication, data, members of a group), being held back by a quota (throttle, after
the answer), waiting to be sent, and being sent. Nothing is computed while nobody asks, but sums in large portions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from triokafka.broker_stub.request.context import RequestContext
from triokafka.named_tuple import NamedTuple

requests_logger = logging.getLogger("triokafka.broker_stub.requests")
"""One line for each answered request, at debug level."""

_PORTION: Final = 512
"""Requests whose times are summed up together, and those that quantiles are taken of, at least."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


Times = tuple[float, float, float, float, float, float, float, float]
"""What one request took: seconds by phase and in all, and its bytes, in the order of `METRICS`."""

METRICS: Final = (
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ThrottleTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "TotalTimeMs",
    "RequestBytes",
)
"""The metrics of each API, in the order of `Times`."""


class Summary(NamedTuple):
    """One metric of one API: milliseconds, or bytes. Quantiles are those of the last requests."""

    requests: int
    total: float
    most: float
    quantiles: dict[float, float]


class ApiMetrics:
    """The requests of one API."""

    def __init__(self) -> None:
        self.by_version: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self._pending: list[Times] = []
        self._recent: list[Times] = []
        self._count = 0
        self._sums = [0.0] * len(METRICS)
        self._most = [0.0] * len(METRICS)

    @property
    def count(self) -> int:
        """Requests that were answered."""
        return self._count + len(self._pending)

    @property
    def local_seconds(self) -> float:
        """How long they were worked on, all taken together."""
        self._sum_up()
        return self._sums[1]

    def record(self, version: int, times: Times) -> None:
        """A request was answered, or its connection is gone."""
        self.by_version[version] = self.by_version.get(version, 0) + 1
        self._pending.append(times)
        if len(self._pending) >= _PORTION:
            self._sum_up()

    def summaries(self) -> dict[str, Summary]:
        """Every metric by its name."""
        self._sum_up()
        last = self._recent
        columns = [sorted(column) for column in zip(*last, strict=True)] if last else [[0.0]] * len(METRICS)
        found = {}
        for name, column, total, most in zip(METRICS, columns, self._sums, self._most, strict=True):
            unit = 1 if name == "RequestBytes" else 1000
            quantiles = {q: column[min(int(q * len(column)), len(column) - 1)] * unit for q in QUANTILES}
            found[name] = Summary(self._count, total * unit, most * unit, quantiles)
        return found

    def _sum_up(self) -> None:
        pending = self._pending
        if not pending:
            return
        for number, column in enumerate(zip(*pending, strict=True)):
            self._sums[number] += sum(column)
            self._most[number] = max(self._most[number], *column)
        self._count += len(pending)
        self._recent = pending if len(pending) >= _PORTION else [*self._recent, *pending][-_PORTION:]
        self._pending = []


class RequestMetrics:
    """The requests of one broker, by API; fetches also as those of consumers and of followers."""

    def __init__(self) -> None:
        self._apis: dict[str, ApiMetrics] = {}

    def __iter__(self) -> Iterator[tuple[str, ApiMetrics]]:
        return iter(sorted(self._apis.items()))

    def api(self, name: str) -> ApiMetrics:
        """The metrics of an API by its name; empty ones when it was never asked for."""
        metrics = self._apis.get(name)
        if metrics is None:
            metrics = self._apis[name] = ApiMetrics()
        return metrics

    @property
    def count(self) -> int:
        """Requests that were answered, of all APIs."""
        return sum(api.count for name, api in self._apis.items() if name not in ("FetchConsumer", "FetchFollower"))


def log_request(name: str, context: RequestContext, times: Times) -> None:
    """One line about an answered request: who asked what, and milliseconds by phase."""
    queue, local, remote, throttle, response_queue, send, total, size = times
    requests_logger.debug(
        "%s v%d correlation %d from %s:%d on %s, client %r, %s, %d bytes: total %.3f ms, queue %.3f, local %.3f, "
        "remote %.3f, throttle %.3f, response queue %.3f, send %.3f",
        name,
        context.version,
        context.header.correlation_id,
        *context.peer,
        context.listener,
        context.client_id,
        context.principal,
        size,
        *(seconds * 1000 for seconds in (total, queue, local, remote, throttle, response_queue, send)),
    )
