"""EndTxn (API key 26)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Boolean, Int16, Int32, Int64, String


class EndTxnRequest(Request["EndTxnResponse"], api_key=26, versions="0-5", flexible="3+"):
    """Ask."""

    transactional_id: str = field(String, doc="Transactional id.")
    producer_id: int = field(Int64, doc="Producer id.")
    producer_epoch: int = field(Int16, doc="Producer epoch.")
    committed: bool = field(Boolean, doc="Committed.")


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, doc="Throttle time ms.")
    error_code: int = field(Int16, doc="Error code.")
    producer_id: int = field(Int64, versions="5+", ignorable=True, default=-1, doc="Producer id.")
    producer_epoch: int = field(Int16, versions="5+", ignorable=True, default=-1, doc="Producer epoch.")
