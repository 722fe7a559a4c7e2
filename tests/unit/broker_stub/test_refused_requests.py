"""The memory of a request is free as soon as it is answered or refused.

The collector of reference cycles must not be needed: it counts objects, not their bytes.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.api.node import Node, batch, running_node
from tests.unit.broker_stub.api.samples import filled
from tests.unit.broker_stub.network.streams import ScriptedStream
from triokafka import errors
from triokafka.broker_stub.api import Handlers
from triokafka.broker_stub.authorizer import Authorizer
from triokafka.broker_stub.network.processor import BUSY, ConnectionProcessor
from triokafka.broker_stub.request.answer import Answer
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import CloseConnectionError, Handler
from triokafka.checksum import crc32c
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.protocol.declaration import Struct
from triokafka.protocol.frames import encode_request
from triokafka.protocol.message import Request, Response
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import Buffer

HANDLERS: Final = {handler.name: handler for handler in Handlers().values()}
_KINDS: Final = (types.TracebackType, types.FrameType, BaseException, Struct, memoryview)
"""What refers to a request, or is one; a cycle with none of these in it keeps no request."""
_OF_A_REQUEST: Final = (Request, Response, RequestContext, Answer)
_LARGE: Final = 140_000
"""Bytes of a request that is decoded in bounded memory."""


@contextmanager
def no_cycles() -> Iterator[None]:
    """Fail if the block leaves cycles that hold a request, a failure or a view of a frame.

    The collector looks only at the objects that the block creates: the others are many.
    """
    gc.disable()
    gc.freeze()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        found = [_shown(thing) for thing in gc.garbage if isinstance(thing, _KINDS)]
        assert not found, found[:20]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


def _shown(thing: object) -> str:
    if isinstance(thing, types.FrameType):
        return f"frame of {thing.f_code.co_qualname} line {thing.f_lineno}"
    if isinstance(thing, types.TracebackType):
        return f"traceback in {thing.tb_frame.f_code.co_qualname} line {thing.tb_lineno}"
    return repr(thing)[:200]


class DenyAll(Authorizer):
    """Denies everything."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        return False


class Broken(ScriptedStream):
    """Breaks when an answer is sent."""

    async def send(self, *buffers: Buffer) -> None:
        raise ConnectionResetError("gone")


def reseal(data: bytearray) -> None:
    """Give a changed batch its right checksum."""
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")


async def serve(node: Node, stream: ScriptedStream, *, to_its_end: bool = False) -> None:
    """Serve a connection until it ends or, unless ``to_its_end``, waits for something, and cancel it then."""
    shared = node.broker.sockets.shared(node.broker.dispatcher)
    processor = ConnectionProcessor(stream, connection_id="connection", listener="PLAINTEXT", shared=shared)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(processor.run)
        if not to_its_end:
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


def framed(content: bytes) -> bytes:
    """Bytes behind their size."""
    return len(content).to_bytes(4, "big") + content


def good_frame(handler: Handler[Any, Any], version: int, node: Node) -> bytes:
    """A request with an element in each array, behind its size."""
    topics = node.broker.image.topics
    request = filled(handler.request_type, version, {name: topics[name].topic_id for name in topics})
    return b"".join(encode_request(request, version=version, correlation_id=1, client_id="test"))


def malformed(frame: bytes) -> Iterator[bytes]:
    """The frame cut, with bytes too many and with changed bytes; small, and beyond `_LARGE`."""
    content, random = frame[4:], Random(len(frame))
    header = content[:14]
    yield framed(content[: len(content) // 2])
    yield framed(content[:-1])
    yield framed(content + b"\xff" * 10)
    yield framed(content + b"\xff" * _LARGE)
    yield framed(header + b"\xff" * _LARGE)
    yield framed(header + b"\0" * 3 + random.randbytes(_LARGE))
    for _ in range(4):
        changed = bytearray(content)
        for _ in range(2):
            changed[random.randrange(8, len(changed))] = random.randrange(256)
        yield framed(bytes(changed))


def fails(error: Exception) -> Callable[[Any, RequestContext], Any]:
    """A handler that has the request in its hands when it fails."""

    async def handle(request: Any, context: RequestContext) -> Any:
        await trio.lowlevel.checkpoint()
        raise type(error)(*error.args)

    return handle


async def waits(request: Any, context: RequestContext) -> Any:
    """A handler that never answers."""
    await trio.sleep_forever()


@pytest.mark.parametrize("name", HANDLERS)
async def test_request_leaves_no_cycle_whatever_becomes_of_it(name: str) -> None:
    """Every API in every version: answered, malformed, refused, failed, cut off, cancelled."""
    async with running_node(auto_create_topics_enable=False) as node:
        await node.create("open")
        handler = node.broker.dispatcher.handlers[HANDLERS[name].api_key]
        function = handler.function
        for _ in range(2):  # caches, and the codecs of the versions, are made in the first round
            with no_cycles():
                for version in handler.versions:
                    frame = good_frame(handler, version, node)
                    await serve(node, ScriptedStream(frame, frame))
                    for bad in malformed(frame):
                        await serve(node, ScriptedStream(bad))
                    await serve(node, ScriptedStream(frame[:6] + b"\x00\x63" + frame[8:]))  # version 99
                    await serve(node, ScriptedStream(frame[: len(frame) // 2]))  # hangs up in the middle
                    await serve(node, ScriptedStream(frame[: len(frame) // 2], end=False))  # is cancelled
                    await serve(node, Broken(frame))
                    for error in (
                        errors.InvalidRequestError("no"),
                        ValueError("unforeseen"),
                        CloseConnectionError("hang up"),
                        trio.TooSlowError(),
                    ):
                        handler.function = fails(error)
                        await serve(node, ScriptedStream(frame))
                    handler.function = waits
                    await serve(node, ScriptedStream(frame, end=False))
                    handler.function = function


@pytest.mark.parametrize("name", HANDLERS)
async def test_idle_connection_keeps_neither_its_last_request_nor_the_answer(name: str) -> None:
    """In the newest version of every API; of Produce the connection keeps what does not change."""
    handler = HANDLERS[name]
    version = handler.versions[-1]
    async with running_node(auto_create_topics_enable=False) as node, trio.open_nursery() as nursery:
        await node.create("open")
        stream = ScriptedStream(good_frame(handler, version, node), end=False)
        shared = node.broker.sockets.shared(node.broker.dispatcher)
        processor = ConnectionProcessor(stream, connection_id="connection", listener="PLAINTEXT", shared=shared)
        gc.disable()
        gc.freeze()  # what exists now is not among gc.get_objects
        try:
            nursery.start_soon(processor.run)
            await trio.testing.wait_all_tasks_blocked()
            alive = {type(thing) for thing in gc.get_objects() if isinstance(thing, _OF_A_REQUEST)}
            if processor.idle_since != BUSY:  # members of a group wait for each other
                assert alive <= {ProduceRequest}
        finally:
            gc.unfreeze()
            gc.enable()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("padding", [0, 60_000])
async def test_refused_compressed_batch_leaves_no_cycle(codec: str, padding: int) -> None:
    """Checked on the event loop and in a thread: damaged, too early, without key, and expanding too much."""
    async with running_node() as node:
        await node.create("bounded", message_timestamp_before_max_ms="1000")
        await node.create("compacted", cleanup_policy="compact")
        await node.create("converted", compression_type="lz4" if codec == "zstd" else "zstd")
        value = Random(1).randbytes(padding)
        damaged = bytearray(batch(value, compression=codec))
        damaged[-8:] = b"\xff" * 8
        reseal(damaged)
        packed = [bytes(damaged), batch(value, compression=codec), batch(bytes(2_000_000), compression=codec)]
        for _ in range(2):
            with no_cycles():
                for topic in ("bounded", "compacted", "converted"):
                    for records in packed:
                        request = node.produce_request(topic, records)
                        frame = b"".join(encode_request(request, version=9, correlation_id=1, client_id="test"))
                        stream = ScriptedStream(frame)
                        await serve(node, stream, to_its_end=True)
                        assert stream.sent


@pytest.mark.parametrize("name", HANDLERS)
async def test_denied_request_leaves_no_cycle(name: str) -> None:
    """Every API in every version, as a whole or by item."""
    async with running_node(authorizer=DenyAll()) as node:
        await node.create("open")
        frames = [good_frame(HANDLERS[name], version, node) for version in HANDLERS[name].versions]
        for frame in frames:
            await serve(node, ScriptedStream(frame))
        with no_cycles():
            for frame in frames:
                await serve(node, ScriptedStream(frame))
