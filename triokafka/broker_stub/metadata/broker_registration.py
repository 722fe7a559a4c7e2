"""The registration and heartbeats of brokers at the controller (BrokerRegistration, BrokerHeartbeat)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType

from triokafka.broker_stub.metadata.image import EndpointImage
from triokafka.named_tuple import NamedTuple


class BrokerRegistration(NamedTuple):
    """The registration of a starting broker. ``incarnation_id`` is new with every start of its process."""

    broker_id: int
    incarnation_id: uuid.UUID
    cluster_id: str
    endpoints: tuple[EndpointImage, ...]
    features: Mapping[str, tuple[int, int]] = MappingProxyType({})
    rack: str | None = None
    directories: tuple[uuid.UUID, ...] = ()


class BrokerHeartbeat(NamedTuple):
    """A heartbeat: the offset up to which the broker has applied the metadata, and whether it wants to be fenced or to
    stop.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False


class HeartbeatReply(NamedTuple):
    """The response to a heartbeat: whether the broker is caught up, is fenced, and may stop now."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool = False
