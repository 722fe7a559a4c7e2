"""Batches whose check takes long do not delay other clients."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import trio

from tests.unit.broker_stub.api.node import Node, batch, running_node
from triokafka import errors
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest
from triokafka.records import decode_records, iter_batches
from triokafka.world.memory import MemoryStorage
from triokafka.world.system import RealWorld

T = TypeVar("T")


class HeldThreads(RealWorld):
    """A world in memory whose threads for checks begin when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage(crashable=False)
        self.asked = trio.Event()
        self.go = trio.Event()
        self.checks = 0

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        if function.__name__ == "_check_all":
            self.checks += 1
            self.asked.set()
            await self.go.wait()
        return await super().run_in_thread(function, *args)


def much() -> bytes:
    """A value of 100,000 bytes that compress badly."""
    return random.Random(1).randbytes(100_000)


async def stored(node: Node, topic: str) -> list[tuple[str, bytes | None]]:
    """Codec and value of all records, each batch with one."""
    (partition,) = await node.fetch(topic, 0)
    found = partition.records or b""
    codecs = [info.compression for info in iter_batches(found, check_crc=True)]
    return list(zip(codecs, [record.value for record in decode_records(found)], strict=True))


@pytest.mark.parametrize(
    ("wanted", "came", "value", "kept"),
    [
        ("producer", "gzip", much(), "gzip"),
        ("gzip", "none", much(), "gzip"),
        ("uncompressed", "gzip", much(), "none"),
        # Next to nothing to send, much to look into.
        ("producer", "gzip", bytes(900_000), "gzip"),
    ],
)
async def test_others_are_served_while_a_large_batch_is_looked_into(
    wanted: str, came: str, value: bytes, kept: str
) -> None:
    world = HeldThreads()
    async with running_node(world=world) as node, trio.open_nursery() as nursery:
        await node.create("t", compression_type=wanted)
        answers = []

        async def produce_much() -> None:
            answers.append(await node.produce("t", batch(value, compression=came)))

        nursery.start_soon(produce_much)
        await world.asked.wait()
        assert (await node.produce("t", batch(b"small", compression=kept))).base_offset == 0
        assert not answers
        world.go.set()
        while not answers:
            await trio.lowlevel.checkpoint()
        assert (answers[0].error_code, answers[0].base_offset) == (0, 1)
        assert await stored(node, "t") == [(kept, b"small"), (kept, value)]


async def test_little_work_is_done_at_once() -> None:
    """A thread would cost more than that."""
    world = HeldThreads()
    async with running_node(world=world) as node:
        await node.create("t", compression_type="gzip")
        for codec in ("gzip", "lz4", "none"):
            assert (await node.produce("t", batch(b"v", compression=codec))).error_code == 0
        assert await stored(node, "t") == [("gzip", b"v")] * 3
        assert not world.checks


async def test_batch_is_validated_again_after_a_change_of_the_topic() -> None:
    """The check holds for the configuration that it was made with."""
    world = HeldThreads()
    async with running_node(world=world) as node, trio.open_nursery() as nursery:
        await node.create("t", compression_type="gzip")

        async def produce_much() -> None:
            assert (await node.produce("t", batch(much()))).error_code == 0

        nursery.start_soon(produce_much)
        await world.asked.wait()
        log = node.broker.replicas.partition(("t", 0)).log
        log.update_config(node.broker.logs.config_for({"compression.type": "lz4"}))
        world.go.set()
        while not (found := await stored(node, "t")):
            await trio.lowlevel.checkpoint()
        assert found == [("lz4", much())]


async def test_refusal_of_the_validation_thread_is_the_answer() -> None:
    """As without a thread: only the partition with that batch fails, and the batch is not written."""
    world = HeldThreads()
    world.go.set()
    async with running_node(world=world) as node:
        await node.create("t")
        broken = bytearray(batch(much(), compression="gzip"))
        broken[-1] ^= 1
        assert (await node.produce("t", bytes(broken))).error_code == errors.CorruptRecordError.code
        assert world.checks == 1
        assert await stored(node, "t") == []


async def test_recreated_topic_gets_no_record_that_was_sent_to_the_earlier_one() -> None:
    """The client named the earlier topic by its id (KIP-516). A client that names it by name writes to the new one."""
    world = HeldThreads()
    async with running_node(world=world) as node, trio.open_nursery() as nursery:
        await node.create("t")
        answers = []

        async def produce_much() -> None:
            answers.append(await node.produce("t", batch(much(), compression="gzip"), version=13))

        nursery.start_soon(produce_much)
        await world.asked.wait()
        gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        assert (await node.call(gone, 5)).responses[0].error_code == 0
        await node.create("t")
        world.go.set()
        while not answers:
            await trio.lowlevel.checkpoint()
        assert answers[0].error_code == errors.UnknownTopicIdError.code
        assert await stored(node, "t") == []
