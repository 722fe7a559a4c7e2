"""The metrics endpoint (``triokafka broker --metrics``): ``GET /metrics`` in the text format of Prometheus.

The endpoint is read-only and needs no token. On a loopback address it refuses a ``Host`` that is not this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from triokafka.broker_stub.http_server import HttpRequest, HttpServer, Reply
from triokafka.broker_stub.metrics.catalogue import Sample, as_prometheus_text
from triokafka.world import World

PATH: Final = "/metrics"
Metrics = Callable[[], Iterable[Sample]]


def metrics_server(world: World, metrics: Metrics) -> HttpServer:
    """Return a server for a broker's metrics. Call `HttpServer.bind` and then `HttpServer.run`."""

    async def answer(request: HttpRequest) -> Reply:
        if request.path.partition("?")[0] != PATH:
            return "404 Not Found", {"error": f"{request.path} is not there; {PATH} is"}
        if request.method != "GET":
            return "405 Method Not Allowed", {"error": f"{request.method}: only GET is served"}
        return "200 OK", as_prometheus_text(metrics())

    return HttpServer(world, "the metrics endpoint", answer)
