"""Compression: what producers compress, what topics re-compress, and every reader."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.catalogue import FIRST_TIMESTAMP, Case, scenario
from tests.conformance.driver import Message

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _messages(count: int) -> list[Message]:
    return [
        Message(b"value %d " % i * 20, b"key-%d" % i, 0, FIRST_TIMESTAMP + i, (("n", b"%d" % i),)) for i in range(count)
    ]


def _come_back(case: Case, topic: str, codec: str, **options: object) -> None:
    sent = _messages(200)
    case.send(topic, sent, compression_type=codec, **options)
    found = case.read(topic, 200, check_crcs=True)
    assert [(r.offset, r.value, r.key, r.timestamp, r.headers) for r in found] == [
        (i, m.value, m.key, m.timestamp, m.headers) for i, m in enumerate(sent)
    ]


def _produced(codec: str) -> Callable[[Case], None]:
    def steps(case: Case) -> None:
        _come_back(case, case.topic(), codec)

    steps.__doc__ = f"Records sent with compression.type={codec} come back as they were."
    return steps


def _idempotent(codec: str) -> Callable[[Case], None]:
    def steps(case: Case) -> None:
        _come_back(case, case.topic(), codec, enable_idempotence=True)

    steps.__doc__ = f"Records of an idempotent producer with compression.type={codec} come back as they were."
    return steps


def _stored(codec: str) -> Callable[[Case], None]:
    def steps(case: Case) -> None:
        topic = case.topic(compression_type=codec)
        sent: list[bytes | None] = []
        for other in CODECS:
            messages = _messages(30)
            case.send(topic, messages, compression_type=other)
            sent += [message.value for message in messages]
        found = case.read(topic, len(sent))
        assert [(record.offset, record.value) for record in found] == list(enumerate(sent))

    steps.__doc__ = f"A topic with compression.type={codec} takes batches of every codec."
    return steps


for _kind, _make in (("produced", _produced), ("idempotent", _idempotent), ("stored", _stored)):
    for _codec in CODECS:
        _steps = _make("uncompressed" if _make is _stored and _codec == "none" else _codec)
        _steps.__name__ = f"{_kind}_{_codec}"
        scenario(_steps)


@scenario
def mixed_in_one_partition(case: Case) -> None:
    """Batches of all codecs lie in one partition and are read in one go."""
    topic = case.topic()
    for codec in CODECS:
        case.fill(topic, 20, compression_type=codec)
    assert [record.offset for record in case.read(topic, 100)] == list(range(100))


@scenario
def offset_inside_a_batch(case: Case) -> None:
    """Reading from an offset inside a compressed batch gives that record first."""
    topic = case.topic()
    case.fill(topic, 100, compression_type="lz4", linger_ms=100)
    found = case.take(case.reader(topic, {0: 37}), 63)
    assert [record.offset for record in found] == list(range(37, 100))


@scenario
def time_inside_a_batch(case: Case) -> None:
    """A time inside a compressed batch is found to the record."""
    topic = case.topic()
    case.fill(topic, 100, compression_type="zstd", linger_ms=100)
    assert case.reader(topic).offset_for_time((topic, 0), FIRST_TIMESTAMP + 37) == 37
