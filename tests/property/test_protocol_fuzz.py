"""For any input, a decoder returns a message or raises ProtocolError, and nothing else.

Two thousand frames per message, ten thousand in the long run: valid ones with bytes flipped, cut, added and copied, and
random bytes. The seed is in the test id, so a failure can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from construct import ConstructError

from tests.unit.protocol.fillings import name_of, rich, stored_messages, wire_messages
from triokafka.errors import ProtocolError, UnsupportedVersionError
from triokafka.protocol import api, consumer_protocol, frames
from triokafka.protocol.message import Message
from triokafka.protocol.stored.metadata_record import decode_record

FRAMES_PER_MESSAGE = 2_000
MORE_FRAMES = 10_000
_LENGTHS = (
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x00",
    b"\xff",
)


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """Return the frame with one to three changes."""
    data = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        accident = rng.randrange(6)
        if accident == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif accident == 1:
            del data[at:]
        elif accident == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        elif accident == 3:
            data[at : at + 5] = rng.choice(_LENGTHS)
        elif accident == 4:
            data += data[at : at + 8]
        else:
            del data[at : at + rng.randrange(1, 9)]
    return bytes(data)


def noise(cls: type[Message], version: int, rng: random.Random) -> Iterator[bytes]:
    """Yield frames for one version without end."""
    while True:
        valid = rich(cls, version, rng, unknown_tags=True).encode(version)[:2000]
        for _ in range(40):
            yield mutated(valid, rng) if rng.random() < 0.9 else rng.randbytes(rng.randrange(60))


def outcome(cls: type[Message], version: int, data: Any) -> Message | None:
    """Return the message, or None if the frame was refused with a ProtocolError."""
    try:
        return cls.decode(data, version)
    except ProtocolError as error:
        assert error.message
        assert error.path.startswith(cls.__name__)
        assert 0 <= error.offset <= len(data)
        return None


@pytest.mark.parametrize("count", [FRAMES_PER_MESSAGE, pytest.param(MORE_FRAMES, marks=pytest.mark.long)])
@pytest.mark.parametrize("cls", [*wire_messages(), *stored_messages()], ids=name_of)
def test_random_and_mutated_frames_give_a_message_or_a_protocol_error(cls: type[Message], count: int) -> None:
    rng = random.Random(f"{cls.__name__} 1")
    versions = list(cls.all_versions.each())
    sources = [noise(cls, version, rng) for version in versions]
    accepted = 0
    for turn in range(count):
        version = versions[turn % len(versions)]
        data = next(sources[turn % len(versions)])
        message = outcome(cls, version, data if turn % 3 else bytearray(data))
        accepted += message is not None
        if turn % 50 == 0:
            check_against_construct(cls, version, data, message)
    assert 0 < accepted < count


def check_against_construct(cls: type[Message], version: int, data: bytes, message: Message | None) -> None:
    """The interpreted construct accepts and refuses the same frames, and accepted ones can be encoded again."""
    stream = BytesIO(data)
    try:
        cls.construct(version).parse_stream(stream)
        parsed = stream.tell() == len(data)
    except ConstructError:
        parsed = False
    assert parsed == (message is not None), (cls, version, data)
    if message is not None:
        again = cls.decode(message.encode(version), version)
        assert again == message


def test_random_requests_give_a_request_or_a_proper_refusal() -> None:
    rng = random.Random(2)
    keys = list(api.API_NAMES)
    for turn in range(MORE_FRAMES):
        key = keys[turn % len(keys)]
        cls = api.request_type(key)
        version = rng.choice(list(cls.all_versions.each()))
        request = rich(cls, version, rng)
        parts = frames.encode_request(request, version=version, correlation_id=turn, client_id="fuzz")
        frame = mutated(b"".join(parts)[4:], rng)
        try:
            header, _ = frames.decode_request(frame)
        except (ProtocolError, UnsupportedVersionError):
            continue
        assert header.size <= len(frame)


@pytest.mark.parametrize("decode", [decode_record, consumer_protocol.ConsumerProtocolSubscription.decode_versioned])
def test_random_bytes_with_a_version_in_front_are_refused(decode: Any) -> None:
    rng = random.Random(3)
    for _ in range(MORE_FRAMES):
        data = bytes((rng.randrange(2), rng.randrange(30), rng.randrange(4))) + rng.randbytes(rng.randrange(40))
        try:
            decode(data)
        except (ProtocolError, UnsupportedVersionError):
            pass
