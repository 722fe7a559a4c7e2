"""Strings of the maximum length in every field of every API and in the client id: the broker responds to
every request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import UUID

import pytest
import trio

from tests.support.logged import lines
from tests.unit.broker_stub.api.node import Node, batch, running_node
from triokafka.broker_stub.api import Handlers
from triokafka.broker_stub.request.error_message_truncation import MAX_BYTES
from triokafka.broker_stub.request.registry import CloseConnectionError, Handler
from triokafka.errors import InvalidTopicError
from triokafka.protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Struct, StructMeta
from triokafka.protocol.primitives import MAX_STRING, Number, StringType, UuidType

HANDLERS = Handlers()
BROKER = ("triokafka.broker_stub", "triokafka.coordinator", "triokafka.records", "triokafka.protocol")
TEXTS = {
    "letters": "x" * MAX_STRING,
    "two bytes each": "é" * (MAX_STRING // 2),
    "longer as a literal": "\x00" * MAX_STRING,
}
NUMBERS = (0, 1, 2)
_PLAIN = "t"


def long_requests(handler: Handler[Any, Any], version: int, text: str) -> Iterator[tuple[str, Any]]:
    """Yield requests, each with ``text`` in one field, by the field's path; numbers are 0, 1 or 2 in all of them."""
    for number in NUMBERS:
        for place in count():
            choice = _Choice(place, text, number)
            request = _filled(handler.request_type, version, choice, handler.name)
            if choice.path is None:
                break
            yield f"{choice.path}, numbers {number}", request


class _Choice:
    """The choice of the long string field, counted in the order of declaration."""

    def __init__(self, place: int, text: str, number: int) -> None:
        self.path: str | None = None
        self.number = number
        self._left = place
        self._text = text

    def text(self, path: str) -> str:
        self._left -= 1
        if self._left != -1:
            return _PLAIN
        self.path = path
        return self._text


def _filled(cls: type[Struct], version: int, choice: _Choice, path: str) -> Any:
    made = cls()
    for field in cls.__fields__:
        if version in field.versions:
            here = f"{path}.{field.name}"
            value = _value(field.type.element if field.is_array else field.type, version, choice, here)
            setattr(made, field.name, [value] if field.is_array else value)
    return made


def _value(wire: Any, version: int, choice: _Choice, path: str) -> Any:
    if isinstance(wire, StructMeta):
        return _filled(wire, version, choice, path)  # type: ignore[arg-type]
    if isinstance(wire, Number):
        return choice.number == 1 if wire.code == "?" else choice.number
    if isinstance(wire, UuidType):
        return UUID(int=0)
    if isinstance(wire, StringType):
        return choice.text(path)
    return batch(b"a")


async def exchange(node: Node, request: Any, version: int, client_id: str = "test") -> None:
    """Send a request, and decode the response."""
    frame = b"".join(encode_request(request, version=version, correlation_id=77, client_id=client_id))
    with trio.fail_after(2**31 / 1000 + 60):
        parts = await node.send_frame(frame)
    if parts:
        number, _ = decode_response(request.response_type, b"".join(parts)[4:], version=version)
        assert number == 77


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.request_type.__name__)
async def test_every_api_answers_the_longest_strings(
    handler: Handler[Any, Any], text: str, caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    """A name repeated in an error message once made the response too long to encode, and the connection was closed."""
    caplog.set_level(logging.ERROR)
    async with running_node() as node:
        await node.create("t")
        for version in {handler.versions[0], handler.versions[-1]}:
            for path, request in long_requests(handler, version, text):
                try:
                    await exchange(node, request, version)
                except CloseConnectionError:
                    assert getattr(request, "acks", None) == 0, path  # the only way to report an error
                except Exception as error:
                    raise AssertionError(f"{path}, version {version}: {error}") from error
    assert not lines(caplog, *BROKER)


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.request_type.__name__)
async def test_every_api_answers_the_longest_client_id(
    handler: Handler[Any, Any], caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    """Member ids start with the client id."""
    caplog.set_level(logging.ERROR)
    async with running_node() as node:
        await node.create("t")
        for version in handler.versions:
            for number in NUMBERS:
                request = _filled(handler.request_type, version, _Choice(-1, "", number), "")
                try:
                    await exchange(node, request, version, client_id="c" * MAX_STRING)
                except CloseConnectionError:
                    assert getattr(request, "acks", None) == 0
    assert not lines(caplog, *BROKER)


@pytest.mark.parametrize(("length", "version"), [(250, 2), (32_767, 2), (32_767, 7)])
async def test_topic_name_that_is_too_long_is_an_invalid_topic(length: int, version: int) -> None:
    async with running_node() as node:
        topic = CreatableTopic(name="x" * length, num_partitions=1, replication_factor=1)
        (answer,) = (await node.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), version)).topics
        assert (answer.name, answer.error_code) == (topic.name, InvalidTopicError.code)
        assert len((answer.error_message or "").encode()) <= MAX_BYTES
        assert (answer.error_message or "").endswith(f", {length}, is longer than the max allowed length 249")


@pytest.mark.parametrize("version", [0, 12])
async def test_response_that_cannot_be_encoded_closes_the_connection_with_the_reason(version: int) -> None:
    """Each byte of a name that is not UTF-8 is decoded as a character of three bytes; Kafka closes the connection as
    well.
    """
    async with running_node() as node:
        topic = MetadataRequestTopic(name="x" * MAX_STRING)
        request = MetadataRequest(topics=[topic])
        frame = b"".join(encode_request(request, version=version, correlation_id=77, client_id="test"))
        with pytest.raises(CloseConnectionError, match="the answer cannot be encoded"):
            await node.send_frame(frame.replace(b"x" * MAX_STRING, b"\xff" * MAX_STRING))
