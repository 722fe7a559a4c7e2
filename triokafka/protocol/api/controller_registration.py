"""ControllerRegistration (API key 70): a controller tells the active one its listeners and features (KIP-919).

Version 0; flexible.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.api.broker_registration import Feature
from triokafka.protocol.api.broker_registration import Listener as BrokerListener
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, Uuid


class Listener(BrokerListener):
    """One listener of the controller."""


class ControllerRegistrationRequest(Request["ControllerRegistrationResponse"], api_key=70, versions="0", flexible="0+"):
    """Register a controller."""

    controller_id: int = field(Int32, doc="The controller's number.")
    incarnation_id: UUID = field(Uuid, doc="A random id of the controller's process.")
    zk_migration_ready: bool = field(
        Boolean, doc="Whether the controller can migrate a cluster from ZooKeeper; always false since Kafka 4."
    )
    listeners: list[Listener] = field(
        Array(Listener), doc="The listeners of the controller, with the addresses that others connect to."
    )
    features: list[Feature] = field(
        Array(Feature),
        doc="The features that the node supports.",
        errors=("UnsupportedVersionError",),
    )


class ControllerRegistrationResponse(Response, api_key=70, versions="0", flexible="0+"):
    """Whether the controller is registered."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "NotControllerError",
            "UnsupportedVersionError",
            "InvalidRequestError",
        ),
    )
    error_message: str | None = fields.error_message(nullable="0+")
