"""Templates of requests and responses give the same results as the declared codec, and leave other cases to it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from triokafka.client.producer.produce_request import template_for
from triokafka.errors import IllegalStateError
from triokafka.protocol.api.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from triokafka.protocol.frames import encode_request, encode_response
from triokafka.protocol.templates import AnswerTemplate, FilledAnswer, RequestTemplate
from triokafka.structs import TopicPartition

ID = uuid.UUID(int=77)
VERSIONS = range(3, 14)


def _template(version: int, client_id: str | None = "client") -> RequestTemplate:
    return template_for(TopicPartition("orders", 300), ID, version, acks=-1, timeout_ms=30_000, client_id=client_id)


def _answer(version: int, throttle_time_ms: int = 0, **fields: Any) -> bytes:
    partition = PartitionProduceResponse(index=300, base_offset=5, log_append_time_ms=6, **fields)
    topic = TopicProduceResponse(name="orders", topic_id=ID, partition_responses=[partition])
    response = ProduceResponse(responses=[topic], throttle_time_ms=throttle_time_ms)
    return b"".join(encode_response(response, version=version, correlation_id=9))[4:]


@pytest.mark.parametrize("size", [1, 126, 127, 1023, 1024, 16_382, 16_383, 131_072, 2_097_151, 3_000_000])
@pytest.mark.parametrize("client_id", [None, "", "client"])
@pytest.mark.parametrize("version", VERSIONS)
def test_template_request_equals_the_codecs(version: int, client_id: str | None, size: int) -> None:
    records = b"r" * size
    partition = PartitionProduceData(index=300, records=records)
    topic = TopicProduceData(name="orders", topic_id=ID, partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    expected = encode_request(request, version=version, correlation_id=0x7FFFFFFF, client_id=client_id)
    made = _template(version, client_id).frame(0x7FFFFFFF, records)
    assert b"".join(made) == b"".join(expected)
    assert [len(part) for part in made] == [len(part) for part in expected]


@pytest.mark.parametrize("version", VERSIONS)
def test_usual_answer_is_read(version: int) -> None:
    answer = _template(version).answer
    assert answer is not None
    numbers = answer.read(_answer(version, log_start_offset=3))
    assert numbers is not None
    assert numbers[:2] == (5, 6)


@pytest.mark.parametrize("version", VERSIONS)
def test_any_other_answer_is_left_to_the_codec(version: int) -> None:
    answer = _template(version).answer
    assert answer is not None
    others = [_answer(version, error_code=6), _answer(version, throttle_time_ms=1), _answer(version) + b"\0"]
    if version >= 8:
        others.append(_answer(version, error_message="?"))
        others.append(_answer(version, record_errors=[BatchIndexAndErrorMessage(batch_index=0)]))
    elsewhere = template_for(TopicPartition("orders", 301), ID, version, acks=-1, timeout_ms=1, client_id=None).answer
    assert elsewhere is not None
    assert elsewhere.read(_answer(version)) is None
    for frame in others:
        assert answer.read(frame) is None
    whole = _answer(version)
    for end in range(len(whole)):
        assert answer.read(whole[:end]) is None


def test_template_that_would_not_make_the_same_is_refused() -> None:
    def size_in_the_name(records: Any) -> ProduceRequest:
        partition = PartitionProduceData(index=0, records=records)
        name = f"of {len(records)}"
        return ProduceRequest(topic_data=[TopicProduceData(name=name, partition_data=[partition])])

    with pytest.raises(IllegalStateError, match="ProduceRequest v9"):
        RequestTemplate(size_in_the_name, 9, "client")

    def sum_elsewhere(first: int, second: int) -> ProduceResponse:
        partition = PartitionProduceResponse(index=first % 7, base_offset=first, log_append_time_ms=second)
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])

    with pytest.raises(IllegalStateError, match="ProduceResponse v9"):
        AnswerTemplate(sum_elsewhere, 9, 2)


@pytest.mark.parametrize("version", range(5, 14))
def test_filled_answer_equals_the_codecs(version: int) -> None:
    def make(*numbers: int) -> ProduceResponse:
        offset, time, start = numbers
        partition = PartitionProduceResponse(
            index=3, base_offset=offset, log_append_time_ms=time, log_start_offset=start
        )
        return ProduceResponse(
            responses=[TopicProduceResponse(name="orders", topic_id=ID, partition_responses=[partition])]
        )

    template = AnswerTemplate(make, version, 3)
    for correlation_id, numbers in ((0, (0, -1, 0)), (-1, (2**63 - 1, 1_700_000_000_000, 5)), (2**31 - 1, (7, 8, 9))):
        expected = b"".join(encode_response(make(*numbers), version=version, correlation_id=correlation_id))
        assert template.frame(correlation_id, numbers) == expected
        assert FilledAnswer(template, numbers).made() == make(*numbers)
