"""AllocateProducerIds (API key 67): a broker gets a block of producer ids (KIP-730).

Version 0; flexible.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Int16, Int32, Int64


class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"], api_key=67, versions="0", flexible="0+"):
    """Ask for a block of producer ids."""

    broker_id: int = field(Int32, doc="The broker that asks.")
    broker_epoch: int = fields.broker_epoch()


class AllocateProducerIdsResponse(Response, api_key=67, versions="0", flexible="0+"):
    """A block of producer ids."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "NotControllerError",
            "StaleBrokerEpochError",
            "BrokerIdNotRegisteredError",
            "UnknownError",
        ),
    )
    producer_id_start: int = field(Int64, doc="The first id of the block.")
    producer_id_len: int = field(Int32, doc="The number of ids in the block.")
