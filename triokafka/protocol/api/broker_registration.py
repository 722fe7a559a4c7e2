"""BrokerRegistration (API key 62): a broker joins the cluster and gets its broker epoch (KIP-631).

Versions 0–4; flexible. v1: migration from ZooKeeper. v2: log directories (KIP-858). v3: the previous broker epoch
(KIP-966). v4: features may have a minimum of 0 (KIP-1022).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String, UInt16, Uuid


class Listener(Struct):
    """One listener of the broker."""

    name: str = field(String, doc="The listener's name.")
    host: str = field(String, doc="The host to connect to.")
    port: int = field(UInt16, doc="The port to connect to.")
    security_protocol: int = field(
        Int16, doc="The security protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."
    )


class Feature(Struct):
    """A feature, with the levels that the node supports."""

    name: str = field(String, doc="The feature's name.")
    min_supported_version: int = field(Int16, doc="The lowest level supported.")
    max_supported_version: int = field(Int16, doc="The highest level supported.")


class BrokerRegistrationRequest(Request["BrokerRegistrationResponse"], api_key=62, versions="0-4", flexible="0+"):
    """Register a broker."""

    broker_id: int = field(Int32, doc="The broker's number.")
    cluster_id: str = field(
        String, doc="The cluster that the broker belongs to.", errors=("InconsistentClusterIdError",)
    )
    incarnation_id: UUID = field(
        Uuid,
        doc="A random id of the broker's process; another one while the former process's session lasts is refused.",
        errors=("DuplicateBrokerRegistrationError",),
    )
    listeners: list[Listener] = field(
        Array(Listener), doc="The listeners of the broker, with the addresses that others connect to."
    )
    features: list[Feature] = field(
        Array(Feature), doc="The features that the node supports.", errors=("UnsupportedVersionError",)
    )
    rack: str | None = field(String, nullable="0+", doc="The broker's rack; null for none.")
    is_migrating_zk_broker: bool = field(
        Boolean,
        versions="1+",
        default=False,
        doc="Whether the broker comes from a cluster with ZooKeeper; always false since Kafka 4.",
        errors=("BrokerIdNotRegisteredError",),
    )
    log_dirs: list[UUID] = field(
        Array(Uuid),
        versions="2+",
        ignorable=True,
        doc="The ids of the broker's log directories that are online.",
        errors=("InvalidRegistrationError", "InvalidRequestError"),
    )
    previous_broker_epoch: int = field(
        Int64,
        versions="3+",
        ignorable=True,
        default=-1,
        doc="The broker epoch before a clean shutdown; -1 after an unclean one.",
    )


class BrokerRegistrationResponse(Response, api_key=62, versions="0-4", flexible="0+"):
    """The epoch of the registration."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "NotControllerError",
            "DuplicateBrokerRegistrationError",
            "InconsistentClusterIdError",
            "UnsupportedVersionError",
            "InvalidRegistrationError",
        ),
    )
    broker_epoch: int = field(Int64, default=-1, doc="The broker epoch; -1 on an error.")
