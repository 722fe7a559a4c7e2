"""Charts from the metrics endpoints of brokers, sampled for all sessions of a console together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from triokafka.console.charted_metrics import CHARTED, readings
from triokafka.console.http_get import HttpEndpoint
from triokafka.console.limits import ConsoleLimits
from triokafka.console.series import CounterRates, SeriesHistory
from triokafka.errors import KafkaConnectionError, KafkaError
from triokafka.world import World

MetricsSource = Callable[[], Awaitable[str]]
"""Returns a broker's metrics in the text format of Prometheus. Raises `KafkaError`."""


def from_endpoint(endpoint: HttpEndpoint) -> MetricsSource:
    """Return a source that asks a broker's ``/metrics``."""

    async def read() -> str:
        status, text = await endpoint.request("GET", "/metrics")
        if status != 200:
            raise KafkaConnectionError(f"{endpoint.address} answers /metrics with status {status}")
        return text

    return read


class ScrapedMetrics:
    """Samples sources, which have the names of their brokers, until `run` is cancelled."""

    def __init__(self, sources: Mapping[str, MetricsSource], world: World, limits: ConsoleLimits) -> None:
        self._sources = sources
        self._world = world
        self._limits = limits
        self._history = SeriesHistory(limits.max_series, limits.max_samples)
        self._rates = {name: CounterRates() for name in sources}
        self._problems: dict[str, str] = {}

    async def run(self) -> None:
        """Sample until cancelled. A broker that does not answer is a gap in its lines."""
        if not self._sources:
            return
        while True:
            async with trio.open_nursery() as nursery:
                for name in self._sources:
                    nursery.start_soon(self._sample, name)
            await trio.sleep(self._limits.sample_interval_ms / 1_000)

    async def _sample(self, name: str) -> None:
        try:
            text = await self._sources[name]()
        except KafkaError as error:
            self._problems[name] = str(error)
            return
        self._problems.pop(name, None)
        found = readings(text)
        counters = {one.key: found[one.key] for one in CHARTED if one.counter and one.key in found}
        values = {key: value for key, value in found.items() if key not in counters}
        values |= self._rates[name].next(self._world.now(), counters)
        now_ms = self._world.wall_ms()
        for key, value in values.items():
            self._history.add(key, name, now_ms, value)

    def charts(self, since_ms: int) -> list[dict[str, Any]]:
        """Return the charts with their points after a time; a chart without any line is left out."""
        made = [(one, self._history.of(one.key, since_ms)) for one in CHARTED]
        return [
            {"key": one.key, "title": one.title, "unit": one.unit, "series": series} for one, series in made if series
        ]

    @property
    def sources(self) -> list[dict[str, Any]]:
        """The brokers' names, each with the reason why it has no metrics, or None."""
        return [{"name": name, "problem": self._problems.get(name)} for name in self._sources]
