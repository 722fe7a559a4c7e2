"""FindCoordinator (API key 10): which broker coordinates a group or a transactional id.

Versions 0–6; flexible from 3. v1: kind of key, error message, throttle time. v4: several keys in one request (KIP-699).
v5: TransactionAbortableError. v6: share groups (KIP-932), whose key is ``group:topic id:partition``.
"""

from __future__ import annotations

from functools import partial

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, Int16, Int32, String

_error_code = partial(
    field,
    Int16,
    doc="The error code of the look-up; 0 for success.",
    errors=(
        "CoordinatorNotAvailableError",
        "CoordinatorLoadInProgressError",
        "InvalidGroupIdError",
        "InvalidRequestError",
        "GroupAuthorizationFailedError",
        "TransactionalIdAuthorizationFailedError",
        "TransactionAbortableError",
    ),
)


class FindCoordinatorRequest(Request["FindCoordinatorResponse"], api_key=10, versions="0-6", flexible="3+"):
    """Ask for the coordinator of one key, or from version 4 on of several."""

    key: str = field(
        String,
        versions="0-3",
        doc="The group or transactional id.",
        errors=("InvalidGroupIdError", "GroupAuthorizationFailedError", "TransactionalIdAuthorizationFailedError"),
    )
    key_type: int = field(
        Int8,
        versions="1+",
        doc="The kind of key: 0 group, 1 transactional id, 2 share group.",
        errors=("InvalidRequestError",),
    )
    coordinator_keys: list[str] = field(Array(String), versions="4+", doc="The groups or transactional ids.")


class Coordinator(Struct):
    """The coordinator of one key."""

    key: str = field(String, versions="4+", doc="The key from the request.")
    node_id: int = field(Int32, versions="4+", doc="The coordinator's broker id; -1 on an error.")
    host: str = field(String, versions="4+", doc="The host to connect to.")
    port: int = field(Int32, versions="4+", doc="The port to connect to.")
    error_code: int = _error_code(versions="4+")
    error_message: str | None = fields.error_message(versions="4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Response, api_key=10, versions="0-6", flexible="3+"):
    """The coordinator, or from version 4 on one per key."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
    error_code: int = _error_code(versions="0-3")
    error_message: str | None = fields.error_message(versions="1-3", nullable="1-3", ignorable=True)
    node_id: int = field(Int32, versions="0-3", doc="The coordinator's broker id; -1 on an error.")
    host: str = field(String, versions="0-3", doc="The host to connect to.")
    port: int = field(Int32, versions="0-3", doc="The port to connect to.")
    coordinators: list[Coordinator] = field(Array(Coordinator), versions="4+", doc="One coordinator for each key.")
