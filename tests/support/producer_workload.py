"""Callers that use a producer in every possible way, at random: the same seed makes the same calls.

It runs in the simulated world, on real sockets, and against any broker. The calls and their results are recorded in the
`Ledger`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

import triokafka
from tests.support.producer_ledger import Call, Ledger
from triokafka.client.deliveries import Delivery
from triokafka.client.producer.partition_stream import PartitionStream
from triokafka.errors import KafkaError


class Workload:
    """``callers`` tasks that together send about ``records`` records to ``topics`` (name to number of partitions).

    ``pause`` is the longest wait between two calls of one caller, in seconds; ``cancel`` the share of cancelled calls;
    ``sizes`` are the possible lengths of values.
    """

    def __init__(
        self,
        chance: random.Random,
        topics: Mapping[str, int],
        *,
        records: int,
        callers: int = 3,
        pause: float = 0.03,
        cancel: float = 0.1,
        sizes: Sequence[int] = (10, 60, 60, 60, 90, 400),
        flushes: bool = True,
    ) -> None:
        self.ledger = Ledger()
        self._chance = chance
        self._topics = dict(topics)
        self._left = records
        self._callers = callers
        self._pause = pause
        self._cancel = cancel
        self._sizes = sizes
        self._flushes = flushes
        self._over: trio.Event | None = None
        self._later_pause = 0.0

    def go_on_until(self, over: trio.Event, *, pause: float = 0.0) -> None:
        """Send more than ``records``, until ``over`` is set.

        With ``pause``, each caller then waits up to so many seconds after each call: a schedule that takes minutes of
        virtual time is not filled with hundreds of thousands of records.
        """
        self._over = over
        self._later_pause = pause

    async def run(self, producer: triokafka.Producer, during: Callable[[], Any] | None = None) -> None:
        """Enter the producer's block, send everything, leave the block, and check that all of it is settled.

        ``during`` is called inside the block, before the first send.
        """
        exit_error: BaseException | None = None
        try:
            async with producer:
                if during is not None:
                    during()
                async with trio.open_nursery() as nursery:
                    for _ in range(self._callers):
                        nursery.start_soon(self._call_again_and_again, producer)
        except ExceptionGroup as group:
            if not group.message.endswith("no task awaited their deliveries"):
                raise
            exit_error = group
        reported = producer.options.on_delivery is not None
        self.ledger.settle(producer.metrics(), exit_error, failures_are_reported=reported)

    async def _call_again_and_again(self, producer: triokafka.Producer) -> None:
        chance = self._chance
        kinds = [self._send, self._send_nowait, self._send_many, self._stream, self._await_one, self._flush]
        weights = [10, 4, 3, 3, 2, 0.7 if self._flushes else 0]
        while self._left > 0 or (self._over is not None and not self._over.is_set()):
            (kind,) = chance.choices(kinds, weights)
            await kind(producer)
            if self._left <= 0 and self._later_pause:
                await trio.sleep(chance.uniform(0, self._later_pause))
            elif chance.random() < 0.25:
                await trio.sleep(chance.uniform(0, self._pause))

    # ---------------------------------------------------------------- the ways to send

    def _begin(self, count: int = 1) -> Call:
        self._left -= count
        return self.ledger.begin(count)

    def _target(self) -> tuple[str, int]:
        topic = self._chance.choice(list(self._topics))
        return topic, self._chance.randrange(self._topics[topic])

    def _scope(self) -> trio.CancelScope:
        """Return a cancel scope: without effect; cancelled from the start, which the first checkpoint notices; or
        later."""
        draw = self._chance.random()
        if draw >= self._cancel:
            return trio.CancelScope()
        if draw < self._cancel / 2:
            scope = trio.CancelScope()
            scope.cancel()
            return scope
        return trio.move_on_after(self._chance.uniform(0, self._pause))

    def _how(self, call: Call, partition: int) -> dict[str, Any]:
        """Return the arguments of a single send besides topic and value."""
        chance = self._chance
        how: dict[str, Any] = {}
        draw = chance.random()
        if draw < 0.5:
            how["partition"] = partition
        elif draw < 0.7:
            how["key"] = b"key-%d" % chance.randrange(5)
        if chance.random() < 0.2:
            how["headers"] = [("header", b"content")]
        if chance.random() < 0.2:
            call.expects_callback = True
            how["on_delivery"] = call.on_delivery
        return how

    async def _send(self, producer: triokafka.Producer) -> None:
        topic, partition = self._target()
        call = self._begin()
        value = call.value(self._chance.choice(self._sizes))
        how = self._how(call, partition)
        try:
            with self._scope():
                call.accept(await producer.send(topic, value, **how))
        except KafkaError:
            pass
        self._close(call)

    async def _send_nowait(self, producer: triokafka.Producer) -> None:
        for _ in range(self._chance.randrange(1, 8)):
            topic, partition = self._target()
            call = self._begin()
            value = call.value(self._chance.choice(self._sizes))
            try:
                call.accept(producer.send_nowait(topic, value, **self._how(call, partition)))
            except KafkaError:
                pass
            self._close(call)
        await trio.lowlevel.checkpoint()

    async def _send_many(self, producer: triokafka.Producer) -> None:
        chance = self._chance
        topic, partition = self._target()
        count = chance.randrange(1, 25)
        call = self._begin(count)
        size = chance.choice(self._sizes[:-1])
        values = [call.value(size, number) for number in range(count)]
        how: dict[str, Any] = {}
        draw = chance.random()
        if draw < 0.5:
            how["partition"] = partition
        elif draw < 0.7:
            how["keys"] = [b"key-%d" % chance.randrange(5) for _ in values]
        elif draw < 0.8:
            how["partition"] = [chance.randrange(self._topics[topic]) for _ in values]
        try:
            with self._scope():
                call.accept(await producer.send_many(topic, values, **how))
        except KafkaError:
            pass
        if call.fate == "open":
            call.cut_off()

    async def _stream(self, producer: triokafka.Producer) -> None:
        topic, partition = self._target()
        stream: PartitionStream | None = None
        try:
            with self._scope():
                stream = await producer.bind(topic, partition)
        except KafkaError:
            pass
        if stream is None:
            return
        for _ in range(self._chance.randrange(1, 8)):
            call = self._begin()
            value = call.value(self._chance.choice(self._sizes))
            try:
                if self._chance.random() < 0.5:
                    call.accept(stream.send_nowait(value))
                else:
                    with self._scope():
                        call.accept(await stream.send(value))
            except KafkaError:
                pass
            self._close(call)

    def _close(self, call: Call) -> None:
        if call.fate == "open":
            call.refuse()
            call.expects_callback = False

    # ---------------------------------------------------------------- the ways to wait

    async def _await_one(self, producer: triokafka.Producer) -> None:
        accepted = [call for call in self.ledger.calls[-30:] if call.fate == "accepted" and call.count == 1]
        if not accepted:
            return
        call = self._chance.choice(accepted)
        (delivery,) = call.deliveries
        assert isinstance(delivery, Delivery)
        with trio.move_on_after(self._chance.uniform(0, self._pause * 4)):
            try:
                await delivery
            except KafkaError:
                call.awaited.add(call.first)

    async def _flush(self, producer: triokafka.Producer) -> None:
        accepted = [call for call in self.ledger.calls if call.fate == "accepted"]
        with trio.move_on_after(self._chance.choice([0.01, 1000])) as scope:
            await producer.flush()
        if not scope.cancelled_caught:
            for call in accepted:
                assert all(delivery.done for delivery in call.deliveries), "flush returned before all were settled"
