"""The metrics endpoint (``triokafka broker --metrics``): ``GET /metrics`` in the text format of Prometheus.

``GET /healthz`` answers 200 while the event loop runs. ``GET /readyz`` answers 200 when the node serves requests, and
503 before.

The endpoint is read-only and needs no token. On a loopback address it refuses a ``Host`` that is not this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from triokafka.broker_stub.http_server import HttpRequest, HttpServer, Reply
from triokafka.broker_stub.metrics.prometheus import prometheus_text
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.world import World

PATHS: Final = ("/metrics", "/healthz", "/readyz")
Metrics = Callable[[], Iterable[Sample]]


def metrics_server(world: World, metrics: Metrics, ready: Callable[[], bool] = lambda: True) -> HttpServer:
    """Return a server for a node's metrics and health. Call `HttpServer.bind` and then `HttpServer.run`."""

    async def answer(request: HttpRequest) -> Reply:
        path = request.path.partition("?")[0]
        if path not in PATHS:
            return "404 Not Found", {"error": f"{request.path} is not there; {', '.join(PATHS)} are"}
        if request.method != "GET":
            return "405 Method Not Allowed", {"error": f"{request.method}: only GET is served"}
        if path == "/metrics":
            return "200 OK", await prometheus_text(metrics(), world)
        if path == "/readyz" and not ready():
            return "503 Service Unavailable", "not ready\n"
        return "200 OK", "ok\n"

    return HttpServer(world, "the metrics endpoint", answer)
