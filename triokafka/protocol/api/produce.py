"""Produce (API key 0)."""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, Records, String, Uuid
from triokafka.structs import Buffer


class PartitionProduceData(Struct):
    """One item of ``partition_data``."""

    index: int = field(Int32, doc="Index.")
    records: Buffer | None = field(Records, nullable="0+", doc="Records.")


class TopicProduceData(Struct):
    """One item of ``topic_data``."""

    name: str = field(String, versions="0-12", ignorable=True, doc="Name.")
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True, doc="Topic id.")
    partition_data: list[PartitionProduceData] = field(Array(PartitionProduceData), doc="Partition data.")


class ProduceRequest(Request["ProduceResponse"], api_key=0, versions="3-13", flexible="9+"):
    """Ask."""

    transactional_id: str | None = field(String, versions="3+", nullable="3+", default=None, doc="Transactional id.")
    acks: int = field(Int16, doc="Acks.")
    timeout_ms: int = field(Int32, doc="Timeout ms.")
    topic_data: list[TopicProduceData] = field(Array(TopicProduceData), doc="Topic data.")


class BatchIndexAndErrorMessage(Struct):
    """One item of ``record_errors``."""

    batch_index: int = field(Int32, versions="8+", doc="Batch index.")
    batch_index_error_message: str | None = field(
        String,
        versions="8+",
        nullable="8+",
        default=None,
        doc="Batch index error message.",
    )


class LeaderIdAndEpoch(Struct):
    """One item of ``current_leader``."""

    leader_id: int = field(Int32, versions="10+", default=-1, doc="Leader id.")
    leader_epoch: int = field(Int32, versions="10+", default=-1, doc="Leader epoch.")


class PartitionProduceResponse(Struct):
    """One item of ``partition_responses``."""

    index: int = field(Int32, doc="Index.")
    error_code: int = field(Int16, doc="Error code.")
    base_offset: int = field(Int64, doc="Base offset.")
    log_append_time_ms: int = field(Int64, versions="2+", ignorable=True, default=-1, doc="Log append time ms.")
    log_start_offset: int = field(Int64, versions="5+", ignorable=True, default=-1, doc="Log start offset.")
    record_errors: list[BatchIndexAndErrorMessage] = field(
        Array(BatchIndexAndErrorMessage),
        versions="8+",
        ignorable=True,
        doc="Record errors.",
    )
    error_message: str | None = field(
        String,
        versions="8+",
        nullable="8+",
        ignorable=True,
        default=None,
        doc="Error message.",
    )
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch,
        versions="10+",
        tag=0,
        tagged="10+",
        doc="Current leader.",
    )


class TopicProduceResponse(Struct):
    """One item of ``responses``."""

    name: str = field(String, versions="0-12", ignorable=True, doc="Name.")
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True, doc="Topic id.")
    partition_responses: list[PartitionProduceResponse] = field(
        Array(PartitionProduceResponse),
        doc="Partition responses.",
    )


class NodeEndpoint(Struct):
    """One item of ``node_endpoints``."""

    node_id: int = field(Int32, versions="10+", doc="Node id.")
    host: str = field(String, versions="10+", doc="Host.")
    port: int = field(Int32, versions="10+", doc="Port.")
    rack: str | None = field(String, versions="10+", nullable="10+", default=None, doc="Rack.")


class ProduceResponse(Response, api_key=0, versions="3-13", flexible="9+"):
    """The answer."""

    responses: list[TopicProduceResponse] = field(Array(TopicProduceResponse), doc="Responses.")
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True, doc="Throttle time ms.")
    node_endpoints: list[NodeEndpoint] = field(
        Array(NodeEndpoint),
        versions="10+",
        tag=0,
        tagged="10+",
        doc="Node endpoints.",
    )
