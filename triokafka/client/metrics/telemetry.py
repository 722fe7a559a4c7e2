"""A client's pushes of its metrics to a broker that asks for them (KIP-714; ``enable_metrics_push``).

`TelemetryState` chooses the metrics of each push; `MetricsPusher` is the task around it. The task starts when a
connection to a broker with the APIs is ready, so that other clusters cost nothing. A failed push is never an error of
the client.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import trio

from triokafka import errors
from triokafka.metrics import MetricName
from triokafka.metrics.otlp import Point, encode_metrics
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.network_client import NetworkClient
from triokafka.network.traffic import Traffic

if TYPE_CHECKING:
    from triokafka.protocol.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse

logger = logging.getLogger(__name__)

TELEMETRY_API: Final = 71
_NIL: Final = UUID(int=0)
_RETRY_SECONDS: Final = 30.0
_LEAST_SECONDS: Final = 0.1
"""The shortest interval, whatever the broker asks for; that of a broker's configuration is the same."""
_LAST_PUSH_SECONDS: Final = 1.0
"""Longest time of the last push, when the client is closed."""
_ALL: Final = "*"
_GIVE_UP: Final = (errors.InvalidRequestError.code, errors.InvalidRecordError.code, errors.UnsupportedVersionError.code)
_ASK_AGAIN: Final = (errors.UnknownSubscriptionIdError.code, errors.UnsupportedCompressionTypeError.code)
_CODECS: Final = (4, 3, 1, 2)


def telemetry_name(name: MetricName) -> str:
    """Return the name of a metric in telemetry: ``org.apache.kafka.producer.record.send.total``."""
    group = name.group.removesuffix("-metrics")
    return f"org.apache.kafka.{group}.{name.name}".replace("-", ".")


class TelemetryState:
    """The subscription of one client, and the values of its sums at the last push."""

    def __init__(self) -> None:
        self.instance_id = _NIL
        self.subscription_id = 0
        self.interval = _RETRY_SECONDS
        self.metrics: tuple[str, ...] = ()
        self.max_bytes = 0
        self.codecs: tuple[int, ...] = ()
        self.delta = True
        self.subscribed = False
        self._last: dict[MetricName, float] = {}
        self._last_ns = 0

    def answered(self, response: GetTelemetrySubscriptionsResponse) -> None:
        """Take over a subscription."""
        if self.instance_id == _NIL:
            self.instance_id = response.client_instance_id
        self.subscription_id = response.subscription_id
        self.interval = max(response.push_interval_ms / 1000, _LEAST_SECONDS)
        self.metrics = tuple(response.requested_metrics)
        self.max_bytes = response.telemetry_max_bytes
        self.codecs = tuple(response.accepted_compression_types)
        self.delta = response.delta_temporality
        self.subscribed = True

    def wants(self, name: str) -> bool:
        """Whether the subscription has the metric."""
        return _ALL in self.metrics or any(name.startswith(prefix) for prefix in self.metrics)

    def points(self, values: Mapping[MetricName, float], now_ns: int) -> list[Point]:
        """Return the wanted metrics. Sums are the growth since the last call if the broker wants that."""
        points: list[Point] = []
        since, self._last_ns = self._last_ns or now_ns, now_ns
        for name, value in values.items():
            full = telemetry_name(name)
            if not math.isfinite(value) or not self.wants(full):
                continue
            tags = {key.replace("-", "_"): text for key, text in name.tags.items() if key != "client-id"}
            grows = name.name.endswith("-total")
            if grows and self.delta:
                value, self._last[name] = value - self._last.get(name, 0.0), value
            points.append(Point(full, tags, value, grows, grows and self.delta, since if grows else now_ns, now_ns))
        return points

    def pushed(self, code: int) -> bool:
        """Note the answer to a push; return False if the client must stop pushing."""
        if code in _ASK_AGAIN:
            self.subscribed = False
        return code not in _GIVE_UP


class MetricsPusher:
    """Pushes one client's metrics.

    Args:
        values: returns the metrics.
        tasks: runs the pushing task, once a broker has the APIs.
        resource: attributes of the client, for example its group.
    """

    def __init__(
        self,
        network: NetworkClient,
        traffic: Traffic,
        tasks: BackgroundTasks,
        values: Callable[[], Mapping[MetricName, float]],
        resource: Mapping[str, str],
    ) -> None:
        self.state = TelemetryState()
        self._network = network
        self._tasks = tasks
        self._values = values
        self._resource = dict(resource)
        self._running = False
        traffic.notify_open(self._connected)

    def _connected(self, api_versions: Mapping[int, Any]) -> None:
        if TELEMETRY_API in api_versions and not self._running and self._tasks.is_open:
            self._running = True
            self._tasks.start(self._run, name="kafka metrics push")

    async def _run(self) -> None:
        from triokafka.protocol.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest

        state, random = self.state, self._network.world.random
        try:
            while True:
                try:
                    if not state.subscribed:
                        request = GetTelemetrySubscriptionsRequest(client_instance_id=state.instance_id)
                        response = await self._network.send_to_least_loaded(request)
                        if response.error_code:
                            raise errors.ERRORS.get(response.error_code, errors.KafkaError)("no subscription")
                        state.answered(response)
                        # Many clients that start together do not push together.
                        await trio.sleep(state.interval * (random.uniform(0.5, 1.5) if state.metrics else 1.0))
                    if state.metrics:
                        if not await self._push(terminating=False):
                            return
                        if state.subscribed:
                            await trio.sleep(state.interval)
                    else:
                        state.subscribed = False
                except (errors.UnsupportedVersionError, errors.InvalidRequestError):
                    raise
                except errors.KafkaError as error:
                    logger.debug("pushing metrics failed: %s", error)
                    await trio.sleep(state.interval)
        except errors.KafkaError as error:
            logger.info("Telemetry: this client pushes no metrics: %s", error)
        except Exception:
            logger.exception("Telemetry: this client pushes no metrics, because of an unexpected error")
        finally:
            self._running = False

    async def _push(self, *, terminating: bool) -> bool:
        from triokafka.protocol.api.push_telemetry import PushTelemetryRequest
        from triokafka.records.compression import compress

        state = self.state
        points = state.points(self._values(), self._network.world.wall_ms() * 1_000_000)
        data, codec = encode_metrics(points, self._resource), 0
        for wanted in state.codecs:
            if wanted in _CODECS:
                try:
                    data, codec = compress(wanted, data), wanted
                except errors.KafkaError:
                    continue  # the library of this codec is not installed
                break
        if len(data) > state.max_bytes > 0:
            logger.warning(
                "Telemetry: metrics of %d bytes are not pushed: the broker accepts %d (telemetry.max.bytes)",
                len(data),
                state.max_bytes,
            )
            data, codec = b"", 0
        response = await self._network.send_to_least_loaded(
            PushTelemetryRequest(
                client_instance_id=state.instance_id,
                subscription_id=state.subscription_id,
                terminating=terminating,
                compression_type=codec,
                metrics=data,
            )
        )
        if response.error_code:
            logger.debug("the broker refused metrics with error code %d", response.error_code)
        return state.pushed(response.error_code)

    async def close(self) -> None:
        """Push a last time, for at most a second, if the broker has asked for metrics."""
        if self._running and self.state.subscribed and self.state.metrics:
            with trio.CancelScope(shield=True), trio.move_on_after(_LAST_PUSH_SECONDS):
                try:
                    await self._push(terminating=True)
                except errors.KafkaError as error:
                    logger.debug("the last push of metrics failed: %s", error)
