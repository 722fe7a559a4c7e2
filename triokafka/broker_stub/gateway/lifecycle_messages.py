"""Conversion of registrations and heartbeats between messages and the values that the controller uses."""

from __future__ import annotations

from triokafka.broker_stub.metadata import EndpointImage
from triokafka.broker_stub.metadata.lifecycle_values import (
    BrokerHeartbeat,
    BrokerRegistration,
    ControllerRegistration,
)
from triokafka.protocol.api.broker_heartbeat import BrokerHeartbeatRequest
from triokafka.protocol.api.broker_registration import BrokerRegistrationRequest, Feature, Listener
from triokafka.protocol.api.controller_registration import ControllerRegistrationRequest
from triokafka.protocol.api.controller_registration import Listener as ControllerListener


def registration_request(registration: BrokerRegistration) -> BrokerRegistrationRequest:
    """Return the message of a registration."""
    return BrokerRegistrationRequest(
        broker_id=registration.broker_id,
        cluster_id=registration.cluster_id,
        incarnation_id=registration.incarnation_id,
        listeners=[
            Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in registration.endpoints
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in registration.features.items()
        ],
        rack=registration.rack,
        log_dirs=list(registration.directories),
        previous_broker_epoch=registration.previous_broker_epoch,
    )


def registration_of_request(request: BrokerRegistrationRequest) -> BrokerRegistration:
    """Return the registration in a message."""
    return BrokerRegistration(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        cluster_id=request.cluster_id,
        endpoints=tuple(EndpointImage(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
        features={f.name: (f.min_supported_version, f.max_supported_version) for f in request.features},
        rack=request.rack,
        directories=tuple(request.log_dirs),
        previous_broker_epoch=request.previous_broker_epoch,
    )


def heartbeat_request(beat: BrokerHeartbeat) -> BrokerHeartbeatRequest:
    """Return the message of a heartbeat."""
    return BrokerHeartbeatRequest(
        broker_id=beat.broker_id,
        broker_epoch=beat.broker_epoch,
        current_metadata_offset=beat.metadata_offset,
        want_fence=beat.want_fence,
        want_shut_down=beat.want_shut_down,
        offline_log_dirs=list(beat.offline_directories),
        cordoned_log_dirs=None if beat.cordoned_directories is None else list(beat.cordoned_directories),
    )


def heartbeat_of_request(request: BrokerHeartbeatRequest) -> BrokerHeartbeat:
    """Return the heartbeat in a message."""
    return BrokerHeartbeat(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        metadata_offset=request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        offline_directories=tuple(request.offline_log_dirs),
        cordoned_directories=None if request.cordoned_log_dirs is None else tuple(request.cordoned_log_dirs),
    )


def controller_registration_request(registration: ControllerRegistration) -> ControllerRegistrationRequest:
    """Return the message of a controller's registration."""
    return ControllerRegistrationRequest(
        controller_id=registration.controller_id,
        incarnation_id=registration.incarnation_id,
        listeners=[
            ControllerListener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in registration.endpoints
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in registration.features.items()
        ],
    )


def controller_registration_of_request(request: ControllerRegistrationRequest) -> ControllerRegistration:
    """Return the controller's registration in a message."""
    return ControllerRegistration(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(EndpointImage(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
        features={f.name: (f.min_supported_version, f.max_supported_version) for f in request.features},
    )
