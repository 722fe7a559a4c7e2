"""Produce (API key 0) for the producer: encodes batches as a request, and decodes a response to answers by partition.

Most requests carry one batch of one partition, and most responses only its offset: templates serve those.

v3: the first with record batches. v5: log start offset in the answer. v10: new leaders in error replies (KIP-951).
v13: topics by id instead of name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from triokafka.client.producer.batch import ProducerBatch
from triokafka.protocol.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from triokafka.protocol.templates import AnswerTemplate, RequestTemplate
from triokafka.structs import Buffer, Node, TopicPartition

FIRST_VERSION_WITH_IDS: Final = 13
FIRST_IMPLICIT_VERSION: Final = 12
"""The first version that adds its partitions to the transaction (KIP-890)."""
_FIRST_VERSION_WITH_START: Final = 5
_ZERO_ID: Final = uuid.UUID(int=0)


class ProduceAnswer(NamedTuple):
    """The response about one partition of a request."""

    error_code: int
    base_offset: int
    log_append_time: int
    message: str | None
    record_errors: Mapping[int, str | None]
    leader_id: int
    leader_epoch: int
    leader: Node | None
    log_start_offset: int = -1


def build_request(
    batches: Iterable[ProducerBatch],
    version: int,
    *,
    acks: int,
    timeout_ms: int,
    ids: Mapping[str, uuid.UUID],
    transactional_id: str | None = None,
) -> ProduceRequest:
    """One request for batches of different partitions; their bytes are not copied."""
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        name, partition = batch.topic_partition
        topic = topics.get(name)
        if topic is None:
            topic_id = ids.get(name, _ZERO_ID) if version >= FIRST_VERSION_WITH_IDS else _ZERO_ID
            topic = topics[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
        topic.partition_data.append(PartitionProduceData(index=partition, records=batch.build()))
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values())
    )


def template_for(
    topic_partition: TopicPartition,
    topic_id: uuid.UUID,
    version: int,
    *,
    acks: int,
    timeout_ms: int,
    client_id: str | None,
    transactional_id: str | None = None,
) -> RequestTemplate:
    """Return a template of requests with one batch of a partition; its responses give base offset and append time."""
    name, number = topic_partition

    def request(records: Buffer) -> ProduceRequest:
        partition = PartitionProduceData(index=number, records=records)
        topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=[partition])
        return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[topic])

    def answer(base_offset: int, log_append_time: int, log_start_offset: int = -1) -> ProduceResponse:
        partition = PartitionProduceResponse(
            index=number,
            base_offset=base_offset,
            log_append_time_ms=log_append_time,
            log_start_offset=log_start_offset,
        )
        topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[partition])
        return ProduceResponse(responses=[topic])

    numbers = 3 if version >= _FIRST_VERSION_WITH_START else 2
    return RequestTemplate(request, version, client_id, AnswerTemplate(answer, version, numbers))


def read_response(response: ProduceResponse, ids: Mapping[str, uuid.UUID]) -> dict[TopicPartition, ProduceAnswer]:
    """Return the answers by partition; ``ids`` are those of the request's topics, for versions with topic ids only.

    A partition with contradictory answers is left out, because its batch may or may not have been written.
    """
    nodes = {n.node_id: Node(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints}
    names: dict[uuid.UUID, str] | None = None
    answers: dict[TopicPartition, ProduceAnswer] = {}
    unsure: set[TopicPartition] = set()
    for topic in response.responses:
        name = topic.name
        if not name:
            if names is None:
                names = {topic_id: name for name, topic_id in ids.items()}
            name = names.get(topic.topic_id, "")
        for p in topic.partition_responses:
            topic_partition = TopicPartition(name, p.index)
            answer = ProduceAnswer(
                p.error_code,
                p.base_offset,
                p.log_append_time_ms,
                p.error_message,
                {e.batch_index: e.batch_index_error_message for e in p.record_errors},
                p.current_leader.leader_id,
                p.current_leader.leader_epoch,
                nodes.get(p.current_leader.leader_id),
                p.log_start_offset,
            )
            if answers.setdefault(topic_partition, answer) != answer:
                unsure.add(topic_partition)
    for topic_partition in unsure:
        del answers[topic_partition]
    return answers
