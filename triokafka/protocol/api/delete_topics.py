"""DeleteTopics (API key 20)."""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String, Uuid


class DeleteTopicState(Struct):
    """One item of ``topics``."""

    name: str | None = field(String, versions="6+", nullable="6+", default=None, doc="Name.")
    topic_id: UUID = field(Uuid, versions="6+", doc="Topic id.")


class DeleteTopicsRequest(Request["DeleteTopicsResponse"], api_key=20, versions="1-6", flexible="4+"):
    """Ask."""

    topics: list[DeleteTopicState] = field(Array(DeleteTopicState), versions="6+", doc="Topics.")
    topic_names: list[str] = field(Array(String), versions="0-5", ignorable=True, doc="Topic names.")
    timeout_ms: int = field(Int32, doc="Timeout ms.")


class DeletableTopicResult(Struct):
    """One item of ``responses``."""

    name: str | None = field(String, nullable="6+", doc="Name.")
    topic_id: UUID = field(Uuid, versions="6+", ignorable=True, doc="Topic id.")
    error_code: int = field(Int16, doc="Error code.")
    error_message: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        ignorable=True,
        default=None,
        doc="Error message.",
    )


class DeleteTopicsResponse(Response, api_key=20, versions="1-6", flexible="4+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True, doc="Throttle time ms.")
    responses: list[DeletableTopicResult] = field(Array(DeletableTopicResult), doc="Responses.")
