"""CreatePartitions (API key 37)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, String


class CreatePartitionsAssignment(Struct):
    """One item of ``assignments``."""

    broker_ids: list[int] = field(Array(Int32), doc="Broker ids.")


class CreatePartitionsTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    count: int = field(Int32, doc="Count.")
    assignments: list[CreatePartitionsAssignment] | None = field(
        Array(CreatePartitionsAssignment),
        nullable="0+",
        doc="Assignments.",
    )


class CreatePartitionsRequest(Request["CreatePartitionsResponse"], api_key=37, versions="0-3", flexible="2+"):
    """Ask."""

    topics: list[CreatePartitionsTopic] = field(Array(CreatePartitionsTopic), doc="Topics.")
    timeout_ms: int = field(Int32, doc="Timeout ms.")
    validate_only: bool = field(Boolean, doc="Validate only.")


class CreatePartitionsTopicResult(Struct):
    """One item of ``results``."""

    name: str = field(String, doc="Name.")
    error_code: int = field(Int16, doc="Error code.")
    error_message: str | None = field(String, nullable="0+", default=None, doc="Error message.")


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, doc="Throttle time ms.")
    results: list[CreatePartitionsTopicResult] = field(Array(CreatePartitionsTopicResult), doc="Results.")
