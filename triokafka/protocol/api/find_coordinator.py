"""FindCoordinator (API key 10)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, Int16, Int32, String


class FindCoordinatorRequest(Request["FindCoordinatorResponse"], api_key=10, versions="0-6", flexible="3+"):
    """Ask."""

    key: str = field(String, versions="0-3", doc="Key.")
    key_type: int = field(Int8, versions="1+", doc="Key type.")
    coordinator_keys: list[str] = field(Array(String), versions="4+", doc="Coordinator keys.")


class Coordinator(Struct):
    """One item of ``coordinators``."""

    key: str = field(String, versions="4+", doc="Key.")
    node_id: int = field(Int32, versions="4+", doc="Node id.")
    host: str = field(String, versions="4+", doc="Host.")
    port: int = field(Int32, versions="4+", doc="Port.")
    error_code: int = field(Int16, versions="4+", doc="Error code.")
    error_message: str | None = field(String, versions="4+", nullable="4+", ignorable=True, doc="Error message.")


class FindCoordinatorResponse(Response, api_key=10, versions="0-6", flexible="3+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True, doc="Throttle time ms.")
    error_code: int = field(Int16, versions="0-3", doc="Error code.")
    error_message: str | None = field(String, versions="1-3", nullable="1-3", ignorable=True, doc="Error message.")
    node_id: int = field(Int32, versions="0-3", doc="Node id.")
    host: str = field(String, versions="0-3", doc="Host.")
    port: int = field(Int32, versions="0-3", doc="Port.")
    coordinators: list[Coordinator] = field(Array(Coordinator), versions="4+", doc="Coordinators.")
