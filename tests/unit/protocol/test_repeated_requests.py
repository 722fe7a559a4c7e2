"""A repeated request decodes to the same result as with the declared codec, or is not recognized."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from triokafka.errors import ProtocolError
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from triokafka.protocol.frames import decode_request, encode_request
from triokafka.protocol.message import Request
from triokafka.protocol.repeated_requests import RepeatedRequests
from triokafka.structs import Buffer

VERSIONS = range(3, 14)


def _request(
    records: bytes | None = b"r" * 90, *, version: int, partition: int = 300, topic: int = 7, acks: int = -1
) -> ProduceRequest:
    data = TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=records)])
    if version >= 13:
        data.topic_id = uuid.UUID(int=topic)
    else:
        data.name = f"topic-{topic}"
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])


def _frame(request: Request[Any], version: int, *, number: int = 1, client_id: str | None = "client") -> bytearray:
    parts = encode_request(request, version=version, correlation_id=number, client_id=client_id)
    return bytearray(b"".join(parts)[4:])


def _learned(*frames: Buffer) -> RepeatedRequests:
    repeated = RepeatedRequests()
    for frame in frames:
        header, request = decode_request(frame)
        assert isinstance(request, ProduceRequest)
        repeated.learn(frame, header, request)
        repeated.done()
    return repeated


@pytest.mark.parametrize("size", [1, 126, 127, 128, 16_382, 16_383, 16_384, 100_000])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_large", [False, True])
def test_other_records_and_another_number_are_read_as_the_codec_reads_them(
    version: int, size: int, is_large: bool
) -> None:
    """The buffers of large frames contained larger frames before."""

    def buffer_of(frame: bytearray) -> Buffer:
        return memoryview(frame + b"older bytes")[: len(frame)] if is_large else frame

    repeated = _learned(buffer_of(_frame(_request(version=version), version)))
    for number, count in enumerate((size, size, 90, size), -2):
        frame = buffer_of(_frame(_request(bytes((number + 5,)) * count, version=version), version, number=number))
        known = repeated.read(frame)
        assert known is not None
        assert (known.header, known.request) == decode_request(frame)
        repeated.done()


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_let_go_when_the_request_is_done(version: int) -> None:
    """Otherwise an idle connection would keep its last frame."""
    frame = _frame(_request(version=version), version)
    repeated = _learned(frame)
    known = repeated.read(frame)
    assert known is not None
    with pytest.raises(BufferError):
        frame.pop()
    repeated.done()
    frame.pop()  # no view of it exists any more


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_differs_is_left_to_the_codec(version: int) -> None:
    repeated = _learned(_frame(_request(version=version), version))
    others = [
        _frame(_request(version=version, partition=301), version),
        _frame(_request(version=version, topic=8), version),
        _frame(_request(version=version, acks=1), version),
        _frame(_request(version=version), version, client_id="other!"),
        _frame(_request(version=version), version, client_id=None),
        _frame(_request(None, version=version), version),
        _frame(_request(b"", version=version), version),
        _frame(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
        bytearray(),
    ]
    if version + 1 in VERSIONS:
        others.append(_frame(_request(version=version + 1), version + 1))
    for frame in others:
        assert repeated.read(frame) is None
    for more in (b"\0", b"\1", b"more"):
        assert repeated.read(_frame(_request(version=version), version) + more) is None


@pytest.mark.parametrize("version", [8, 12, 13])
def test_damaged_frame_is_never_read_as_something_else(version: int) -> None:
    """Every byte is changed, and every end is cut: the result equals that of the codec, which may refuse the frame."""
    learned = _frame(_request(b"r" * 140, version=version), version)
    repeated = _learned(learned)
    damaged = [learned[:end] for end in range(len(learned))]
    for place in range(len(learned)):
        for change in (1, 0x80, 0xFF):
            frame = bytearray(learned)
            frame[place] ^= change
            damaged.append(frame)
    read = 0
    for frame in damaged:
        known = repeated.read(frame)
        if known is None:
            continue
        read += 1
        try:
            assert (known.header, known.request) == decode_request(frame)
        except ProtocolError as error:
            pytest.fail(f"{bytes(frame)!r} was read, but {error}")
        repeated.done()
    assert read == 3 * (140 + 4)  # those with other records, or another number


def test_request_of_several_partitions_is_not_remembered() -> None:
    request = _request(version=9)
    request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=b"r"))
    assert len(_learned(_frame(request, 9))) == 0
    request = _request(version=9)
    request.topic_data.append(TopicProduceData(name="other", partition_data=[]))
    assert len(_learned(_frame(request, 9))) == 0


def test_requests_with_unknown_tags_are_not_cached() -> None:
    """Unknown tags have an effect, so such a request is decoded each time."""
    frame = _frame(_request(version=9), 9)
    frame[-1:] = b"\1\7\1x"
    assert len(_learned(frame)) == 0


def test_so_many_partitions_are_remembered_and_no_more() -> None:
    frames = [_frame(_request(version=13, partition=number), 13) for number in range(50)]
    repeated = _learned(*frames)
    assert len(repeated) == 32
    assert [repeated.read(frame) is not None for frame in frames] == [True] * 32 + [False] * 18


def test_topics_of_other_lengths_do_not_disturb_those_that_are_known() -> None:
    first, longer = _frame(_request(version=9), 9), _frame(_request(version=9, topic=1000), 9)
    repeated = _learned(first, longer)
    assert repeated.read(first) is not None
    assert repeated.read(longer) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_with_very_long_names_are_not_kept(version: int) -> None:
    """Any client may send them, and the memory of a connection is bounded."""
    request = _request(version=version)
    assert len(_learned(_frame(request, version, client_id="c" * 800))) == 1
    assert len(_learned(_frame(request, version, client_id="c" * 30_000))) == 0
