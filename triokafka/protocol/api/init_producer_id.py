"""InitProducerId (API key 22)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Boolean, Int16, Int32, Int64, String


class InitProducerIdRequest(Request["InitProducerIdResponse"], api_key=22, versions="0-5", flexible="2+", unstable="6"):
    """Ask."""

    transactional_id: str | None = field(String, nullable="0+", doc="Transactional id.")
    transaction_timeout_ms: int = field(Int32, doc="Transaction timeout ms.")
    producer_id: int = field(Int64, versions="3+", default=-1, doc="Producer id.")
    producer_epoch: int = field(Int16, versions="3+", default=-1, doc="Producer epoch.")
    enable2_pc: bool = field(Boolean, versions="6+", doc="Enable2 pc.")
    keep_prepared_txn: bool = field(Boolean, versions="6+", doc="Keep prepared txn.")


class InitProducerIdResponse(Response, api_key=22, versions="0-5", flexible="2+", unstable="6"):
    """The answer."""

    throttle_time_ms: int = field(Int32, ignorable=True, doc="Throttle time ms.")
    error_code: int = field(Int16, doc="Error code.")
    producer_id: int = field(Int64, default=-1, doc="Producer id.")
    producer_epoch: int = field(Int16, doc="Producer epoch.")
    ongoing_txn_producer_id: int = field(Int64, versions="6+", default=-1, doc="Ongoing txn producer id.")
    ongoing_txn_producer_epoch: int = field(Int16, versions="6+", default=-1, doc="Ongoing txn producer epoch.")
