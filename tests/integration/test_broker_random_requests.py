"""Well-formed requests with random values: every API responds, and none fails with an unexpected error."""

from __future__ import annotations

import logging
from random import Random
from typing import Any
from uuid import UUID

import pytest
import trio

from tests.support.logged import lines
from tests.unit.broker_stub.api.node import Node, batch, running_node
from triokafka.broker_stub.api import Handlers
from triokafka.broker_stub.request.registry import CloseConnectionError, Handler
from triokafka.protocol.message import Struct, StructMeta
from triokafka.protocol.primitives import Number, StringType, UuidType

HANDLERS = Handlers()
EXAMPLES = 30
BROKER = ("triokafka.broker_stub", "triokafka.coordinator", "triokafka.records", "triokafka.protocol")
NUMBERS = [0, 0, 1, 1, 2, 5, 100, -1, -2, -3]
TEXTS = ["t", "t", "g", "", "__consumer_offsets", "consumer", "range", "1", "retention.ms", "é" * 70, "x" * 300]


class Filler:
    """Fills structures with values that are likely to exist or to be special."""

    def __init__(self, rng: Random, topic_id: UUID) -> None:
        self._random = rng
        self._topic_id = topic_id

    def structure(self, cls: type[Struct], version: int) -> Any:
        """An object with the fields of one version."""
        made = cls()
        for field in cls.__fields__:
            if version not in field.versions:
                continue
            value: Any
            if version in field.nullable and self._random.random() < 0.3:
                value = None
            elif field.is_array:
                value = [self._one(field.type.element, version) for _ in range(self._random.choice([0, 1, 1, 2]))]
            else:
                value = self._one(field.type, version)
            setattr(made, field.name, value)
        return made

    def _one(self, wire: Any, version: int) -> Any:
        rng = self._random
        if isinstance(wire, StructMeta):
            return self.structure(wire, version)  # type: ignore[arg-type]
        if isinstance(wire, Number):
            if wire.code == "?":
                return rng.random() < 0.5
            return abs(rng.choice(NUMBERS)) if wire.code.isupper() else rng.choice(NUMBERS)
        if isinstance(wire, UuidType):
            return rng.choice([UUID(int=0), UUID(int=7), self._topic_id])
        if isinstance(wire, StringType):
            return rng.choice(TEXTS)
        return rng.choice([b"", b"garbage", batch(b"a"), batch(b"b", b"c", producer_id=1, base_sequence=0)])


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.request_type.__name__)
async def test_every_api_survives_requests_with_random_values(
    handler: Handler[Any, Any], caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    """The result is a response, none for acks=0, or a closed connection."""
    caplog.set_level(logging.ERROR)
    for seed in range(EXAMPLES):
        rng = Random(f"{handler.api_key}/{seed}")
        version = rng.choice(handler.versions)
        async with running_node() as node:
            await node.create("t")
            await node.produce("t", batch(b"a"))
            request = Filler(rng, node.broker.image.topics["t"].topic_id).structure(handler.request_type, version)
            await exchange(node, request, version)
        assert not lines(caplog, *BROKER), f"seed {seed}, version {version}: {request}"


async def exchange(node: Node, request: Any, version: int) -> None:
    """Send a request, and decode the response, if there is one."""
    with trio.fail_after(2**31 / 1000 + 60):  # a rebalance may take as long as the request allows
        try:
            if getattr(request, "acks", None) == 0:
                assert await node.send(request, version) == []
            else:
                await node.call(request, version)
        except CloseConnectionError:
            pass
