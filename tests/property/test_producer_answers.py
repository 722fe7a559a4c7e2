"""Responses to Produce with bytes changed at random: nothing hangs, and all memory is released."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scripted_broker import Raw, ScriptedCluster
from tests.support.scripted_producing import Setup, memory_is_whole
from triokafka.errors import KafkaError, ProtocolError
from triokafka.protocol.api.produce import ProduceRequest, ProduceResponse
from triokafka.protocol.frames import decode_response, encode_response
from triokafka.testing import Simulation, run_simulation

RECORDS = 24

change = st.tuples(st.integers(0, 80), st.integers(0, 255))
answer = st.tuples(st.lists(change, min_size=1, max_size=4), st.integers(-6, 6))
"""The changed bytes of a response, and the number of bytes cut from its end or added to it."""


def spoilt(s: Setup, changes: list[tuple[int, int]], longer: int) -> Any:
    """Return a scripted response: the broker's normal one with some bytes changed.

    The frame's size fits the sent bytes.
    """

    def reply(request: ProduceRequest) -> Any:
        header = s.broker.headers[-1]
        response = s.broker.produce(request)
        if response is None:
            return None
        parts = encode_response(response, version=header.api_version, correlation_id=header.correlation_id)
        frame = bytearray(b"".join(bytes(part) for part in parts)[4:])
        for position, value in changes:
            frame[position % len(frame)] = value
        frame = frame[:longer] if longer < 0 else frame + b"\xff" * longer
        with contextlib.suppress(ProtocolError):
            _, read = decode_response(ProduceResponse, bytes(frame), version=header.api_version)
            if read.throttle_time_ms:
                return response  # the producer would obey a throttle time of hours
        return Raw(struct.pack(">i", len(frame)) + frame)

    return reply


@settings(max_examples=100, deadline=None)
@given(st.lists(answer, min_size=1, max_size=12), st.sampled_from(["all", 1]), st.integers(0, 2**32))
def test_any_response_settles_every_record_and_releases_all_memory(
    answers: list[tuple[list[tuple[int, int]], int]], acks: Any, seed: int
) -> None:

    async def main(simulation: Simulation) -> None:
        cluster = ScriptedCluster(orders=3)
        address = await cluster.start(simulation.nursery, simulation.host("broker").world)
        s = Setup(cluster, address, simulation.host("client").world)
        producer = s.producer(
            acks=acks,
            linger_ms=1,
            batch_size=300,
            buffer_memory=2_000,
            delivery_timeout_ms=10_000,
            request_timeout_ms=1_000,
            max_block_ms=20_000,
        )
        for changes, longer in answers:
            s.broker.script(ProduceRequest, spoilt(s, changes, longer))
        settled = 0
        with trio.fail_after(60):
            async with producer:
                deliveries = []
                try:
                    for number in range(RECORDS):
                        deliveries.append(
                            await producer.send("orders", b"%d" % number + b"x" * 60, partition=number % 3)
                        )
                except KafkaError:
                    assert producer.health().failure is not None
                for delivery in deliveries:
                    try:
                        await delivery
                    except KafkaError:
                        pass
                    settled += 1
                assert len(deliveries) == RECORDS or producer.health().failure is not None
                await producer_is_still_good(producer)
        assert settled == len(deliveries)
        assert memory_is_whole(producer)

    async def producer_is_still_good(producer: Any) -> None:
        if producer.health().failure is None:
            assert (await (await producer.send("orders", b"last"))).topic == "orders"

    run_simulation(main, seed=seed)
