"""Sends batches as produce requests, and passes the ends of requests to the `ResponseHandler`.

Nothing here waits: a connection takes the request and calls back. Most requests carry one batch; the `Route` of its
partition has a template for those.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.batch_log import BatchLog
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.client.producer.produce_request import (
    FIRST_IMPLICIT_VERSION,
    FIRST_VERSION_WITH_IDS,
    build_request,
    read_response,
    template_for,
)
from triokafka.client.producer.response_handler import ResponseHandler
from triokafka.client.producer.route import Route
from triokafka.client.producer.transactions.completion_check import CompletionCheck
from triokafka.errors import ConcurrentTransactionsError, KafkaError, ProtocolError, UnsupportedVersionError
from triokafka.hooks import HookChain
from triokafka.network.broker_channel import BrokerChannel
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.produce import ProduceRequest, ProduceResponse
from triokafka.protocol.templates import FilledRequest
from triokafka.world import World

_FIRST_ZSTD_VERSION: Final = 7
_BATCHES_BEFORE_A_ROUTE: Final = 4
"""Partitions with fewer batches get no route: creating it would cost more than it saves."""


class RequestSender:
    """The requests of one producer.

    ``counters``, ``log`` and ``hooks`` are the sender's. After a successful response, and the responses that arrived
    with it, ``go_on`` receives the time and may send more. After any other end of a request ``wake`` is called instead,
    which must not send, because other requests of the connection may be about to end. ``on_bug`` receives an error of
    the handler itself. ``implicit``: Produce adds its partitions to the transaction (KIP-890). ``completion`` learns
    from the times of a transaction's requests.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        client: NetworkClient,
        answers: ResponseHandler,
        *,
        world: World,
        acks: int,
        counters: dict[str, float],
        log: BatchLog,
        hooks: HookChain,
        wake: Callable[[], None],
        go_on: Callable[[float], None],
        on_bug: Callable[[Exception], None],
        transactional_id: str | None = None,
        completion: CompletionCheck | None = None,
    ) -> None:
        self._accumulator = accumulator
        self._batches = accumulator.batches
        self._answers = answers
        self._world = world
        self._acks = acks
        self._counters = counters
        self._log = log
        self._hooks = hooks or None  # None is cheaper to test for every batch
        self._wake = wake
        self._go_on = go_on
        self._on_bug = on_bug
        self._transactional_id = transactional_id
        self._completion = completion
        self.implicit = False
        self._min_version = _FIRST_ZSTD_VERSION if accumulator.settings.compression_type == "zstd" else None
        self._timeout_ms = int(client.config.request_timeout_ms)
        # Without sequence numbers a retry could write records twice that the broker still works on.
        self._wait_without_sequences = self._timeout_ms / 1000
        self._client_id = client.config.client_id

    def send(self, channel: BrokerChannel, cluster: Cluster, batches: list[ProducerBatch], now: float) -> None:
        """Send one request with batches of different partitions."""
        try:
            batch = batches[0]
            if len(batches) == 1 and batch.number[0] > _BATCHES_BEFORE_A_ROUTE:
                route = self._route(self._batches.queue_of(batch), channel, cluster)
                template = route.template
                filled = FilledRequest(template, batch.build())
                self._submit(channel, filled, template.version, batches, route.ids, now)
            else:
                # A response names topics as its request did, even if the metadata has changed meanwhile.
                ids, all_have_ids = cluster.ids_of(batch.topic_partition.topic for batch in batches)
                version = self._version(channel, all_have_ids)
                request = build_request(
                    batches,
                    version,
                    acks=self._acks,
                    timeout_ms=self._timeout_ms,
                    ids=ids,
                    transactional_id=self._transactional_id,
                )
                self._submit(channel, request, version, batches, ids, now)
        except (UnsupportedVersionError, ProtocolError) as error:
            self._answers.impossible(batches, error)
        except KafkaError as error:
            self._answers.unsent(batches, error, now)
        else:
            counters = self._counters
            counters["request_total"] += 1
            counters["requests_in_flight"] += 1
            for batch in batches:
                self._note_sent(batch, now)

    def _version(self, channel: BrokerChannel, all_have_ids: bool) -> int:
        low, high = self._min_version, None if all_have_ids else FIRST_VERSION_WITH_IDS - 1
        if self._transactional_id is not None:
            # The version says whether the request adds its partitions to the transaction.
            if self.implicit:
                low = FIRST_IMPLICIT_VERSION
            else:
                high = FIRST_IMPLICIT_VERSION - 1
        return channel.version_for(ProduceRequest, low, high)

    def _route(self, queue: PartitionQueue, channel: BrokerChannel, cluster: Cluster) -> Route:
        route = queue.route
        api_versions = channel.api_versions
        if route is not None and route.cluster is cluster and route.api_versions is api_versions:
            return route
        topic = queue.topic_partition.topic
        ids, all_have_ids = cluster.ids_of((topic,))
        version = self._version(channel, all_have_ids)
        if route is None or route.template.version != version or route.ids != ids:
            topic_id = ids[topic] if version >= FIRST_VERSION_WITH_IDS else uuid.UUID(int=0)
            template = template_for(
                queue.topic_partition,
                topic_id,
                version,
                acks=self._acks,
                timeout_ms=self._timeout_ms,
                client_id=self._client_id,
                transactional_id=self._transactional_id,
            )
            route = queue.route = Route(template, ids)
        route.cluster = cluster
        route.api_versions = api_versions
        return route

    def _submit(
        self,
        channel: BrokerChannel,
        request: ProduceRequest | FilledRequest,
        version: int,
        batches: list[ProducerBatch],
        ids: Mapping[str, uuid.UUID],
        now: float,
    ) -> None:
        def done(response: Any, error: Exception | None) -> None:
            is_usual = type(response) is tuple  # the numbers of a template's response, and their time
            ended_at = response[-1] if is_usual else self._world.now()
            self._counters["requests_in_flight"] -= 1
            self._log.request_seconds.append(ended_at - now)
            try:
                if is_usual:
                    if self._completion is not None:
                        self._completion.produced(now, ended_at)
                    self._answers.acknowledged(batches[0], response[0], response[1], ended_at)
                    if self._accumulator.has_work:
                        channel.call_after_answers(self._go_on)
                    return
                self._ended(batches, response, error, ids, now, ended_at)
            except Exception as bug:
                # The connection would only log it, and the records would wait until they expire.
                self._on_bug(bug)
            if self._accumulator.has_work:
                self._wake()

        may_wait = 0.0 if self._batches.idempotent else self._wait_without_sequences
        channel.submit(request, version, done, expect_response=self._acks != 0, now=now, may_wait=may_wait)

    def _ended(
        self,
        batches: list[ProducerBatch],
        response: ProduceResponse | None,
        error: Exception | None,
        ids: Mapping[str, uuid.UUID],
        sent_at: float,
        now: float,
    ) -> None:
        if response is not None:
            if response.throttle_time_ms:
                self._note_throttle(response.throttle_time_ms / 1000)
            answers = read_response(response, ids)
            if self._completion is not None:
                codes = {answer.error_code for answer in answers.values()}
                if ConcurrentTransactionsError.code in codes:
                    self._completion.refused(sent_at)
                elif not any(codes):
                    self._completion.produced(sent_at, now)
            self._answers.answered(batches, answers, now)
        elif error is not None:
            self._counters["request_error_total"] += 1
            self._answers.unanswered(batches, error, now)
        else:
            self._answers.written(batches, now)

    def _note_sent(self, batch: ProducerBatch, now: float) -> None:
        size = batch.size
        builder = batch.builder
        if batch.attempts > 1 or builder is None:
            self._counters["byte_total"] += size
            return
        count, raw = builder.count, builder.size
        self._log.sent.append((batch.topic_partition.topic, count, raw, size, now - batch.created_at))
        if self._hooks:
            self._hooks.on_batch_sealed(batch.topic_partition, count, raw, size)

    def _note_throttle(self, seconds: float) -> None:
        counters = self._counters
        counters["throttle_seconds_total"] += seconds
        if seconds > counters["throttle_seconds_max"]:
            counters["throttle_seconds_max"] = seconds


__all__ = ["RequestSender"]
