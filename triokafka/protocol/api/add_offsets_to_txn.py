"""AddOffsetsToTxn (API key 25)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], api_key=25, versions="0-4", flexible="3+"):
    """Ask."""

    transactional_id: str = field(String, doc="Transactional id.")
    producer_id: int = field(Int64, doc="Producer id.")
    producer_epoch: int = field(Int16, doc="Producer epoch.")
    group_id: str = field(String, doc="Group id.")


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, doc="Throttle time ms.")
    error_code: int = field(Int16, doc="Error code.")
