"""The registration and heartbeats of brokers at the controller (BrokerRegistration, BrokerHeartbeat)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType

from triokafka.broker_stub.metadata.image import EndpointImage
from triokafka.named_tuple import NamedTuple


class BrokerRegistration(NamedTuple):
    """The registration of a starting broker. ``incarnation_id`` is new with every start of its process.

    ``previous_broker_epoch`` is the broker epoch of the process before if that one ended with a clean shutdown; -1
    after an unclean one (KIP-966).
    """

    broker_id: int
    incarnation_id: uuid.UUID
    cluster_id: str
    endpoints: tuple[EndpointImage, ...]
    features: Mapping[str, tuple[int, int]] = MappingProxyType({})
    rack: str | None = None
    directories: tuple[uuid.UUID, ...] = ()
    previous_broker_epoch: int = -1


class ControllerRegistration(NamedTuple):
    """The registration of a controller: its listeners, and the feature levels that it supports (KIP-919)."""

    controller_id: int
    incarnation_id: uuid.UUID
    endpoints: tuple[EndpointImage, ...]
    features: Mapping[str, tuple[int, int]] = MappingProxyType({})


class BrokerHeartbeat(NamedTuple):
    """A heartbeat: the offset up to which the broker has applied the metadata, and whether it wants to be fenced or to
    stop.

    ``offline_directories`` are the ids of its failed log directories (KIP-858), ``cordoned_directories`` those that get
    no new replicas (KIP-1066), None if the broker does not say.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_directories: tuple[uuid.UUID, ...] = ()
    cordoned_directories: tuple[uuid.UUID, ...] | None = None


class HeartbeatReply(NamedTuple):
    """The response to a heartbeat: whether the broker is caught up, is fenced, and may stop now."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool = False
