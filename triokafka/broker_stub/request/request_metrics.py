"""Request metrics with Kafka's names: counts by version and error, and times by phase.

The phases add up to the total time of a request: waiting for a handler slot (queue), processing (local), waiting for
replication, data or group members (remote), throttling after the response, waiting to be sent, and sending. To keep
recording cheap, sums are computed in large portions and quantiles only when read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from triokafka.broker_stub.request.context import RequestContext
from triokafka.named_tuple import NamedTuple

requests_logger = logging.getLogger("triokafka.broker_stub.requests")
"""One line for each answered request, at debug level."""

_PORTION: Final = 512
"""Number of requests that are summed up together, and minimum number of requests for quantiles."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


Times = tuple[float, float, float, float, float, float, float, float]
"""Seconds of one request by phase and in total, and its size in bytes, in the order of `METRICS`."""

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


class RequestSummary(NamedTuple):
    """One metric of one API: milliseconds, or bytes. Quantiles are those of the last requests."""

    requests: int
    total: float
    most: float
    quantiles: dict[float, float]


class ApiMetrics:
    """The requests of one API."""

    def __init__(self) -> None:
        self._by_version: Counter[int] = Counter()
        self._versions: list[int] = []
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
        """Total local processing time in seconds."""
        self._sum_up()
        return self._sums[1]

    @property
    def by_version(self) -> Mapping[int, int]:
        """Number of requests by version of the API."""
        self._sum_up()
        return self._by_version

    def record(self, version: int, times: Times) -> None:
        """Record a request that was answered or whose connection has ended."""
        self._versions.append(version)
        self._pending.append(times)
        if len(self._pending) >= _PORTION:
            self._sum_up()

    def count_errors(self, counts: Mapping[int, int]) -> None:
        """Add the numbers of error codes in a response."""
        for code, times in counts.items():
            self.errors[code] = self.errors.get(code, 0) + times

    def summaries(self) -> dict[str, RequestSummary]:
        """Return every metric by its name."""
        self._sum_up()
        last = self._recent
        columns = [sorted(column) for column in zip(*last, strict=True)] if last else [[0.0]] * len(METRICS)
        found = {}
        for name, column, total, most in zip(METRICS, columns, self._sums, self._most, strict=True):
            unit = 1 if name == "RequestBytes" else 1000
            quantiles = {q: column[min(int(q * len(column)), len(column) - 1)] * unit for q in QUANTILES}
            found[name] = RequestSummary(self._count, total * unit, most * unit, quantiles)
        return found

    def _sum_up(self) -> None:
        pending = self._pending
        if not pending:
            return
        self._by_version.update(self._versions)
        self._versions.clear()
        for number, column in enumerate(zip(*pending, strict=True)):
            self._sums[number] += sum(column)
            self._most[number] = max(self._most[number], max(column))
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
        """Return the metrics of an API by name; empty metrics for an API without requests."""
        metrics = self._apis.get(name)
        if metrics is None:
            metrics = self._apis[name] = ApiMetrics()
        return metrics

    @property
    def count(self) -> int:
        """Requests that were answered, of all APIs."""
        return sum(api.count for name, api in self._apis.items() if name not in ("FetchConsumer", "FetchFollower"))


def log_request(name: str, context: RequestContext, times: Times) -> None:
    """Log one line about an answered request: API, client, and milliseconds by phase."""
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
