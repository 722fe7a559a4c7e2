"""The gateway of a broker to an active controller on another node.

Requests of the broker itself go to the controller as they are. A client's request travels in an Envelope with the
client's principal and address (KIP-590), in the version that the client chose, so that the controller authorizes it and
charges its quotas. A request of no client, such as an automatic topic creation, goes as it is, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from triokafka import errors
from triokafka.broker_stub.gateway.controller_channel import ControllerChannel, Purpose
from triokafka.broker_stub.gateway.gateway_interface import DeniedResources, ForwardedClient
from triokafka.broker_stub.metadata.lifecycle_values import (
    BrokerHeartbeat,
    BrokerRegistration,
    ControllerRegistration,
    HeartbeatReply,
)
from triokafka.broker_stub.metadata.mutation_charge import MutationCharge, no_charge
from triokafka.broker_stub.metadata.producer_id_block import ProducerIdBlock
from triokafka.broker_stub.request.error_counts import error_counter
from triokafka.broker_stub.request.forwarded_requests import encode_address, encode_principal
from triokafka.broker_stub.request.large_requests import LARGE_BYTES
from triokafka.errors import for_code
from triokafka.protocol.frames import SIZE_BYTES, decode_response, encode_request
from triokafka.protocol.message import Request, Response

if TYPE_CHECKING:
    from triokafka.protocol.api.alter_configs import (
        AlterConfigsRequest,
        AlterConfigsResourceResponse,
        AlterConfigsResponse,
    )
    from triokafka.protocol.api.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from triokafka.protocol.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
    from triokafka.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from triokafka.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from triokafka.protocol.api.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

R = TypeVar("R", bound=Response)

_NOT_CONTROLLER: Final = errors.NotControllerError.code
_UPDATE_FEATURES: Final = 57
_ALTER_PARTITION_TIMEOUT_MS: Final = 3_000


class RemoteControllerGateway:
    """A `ControllerGateway` to the active controller over the network.

    Errors of a whole request are raised; errors of items are in the response.

    Args:
        channel: sends requests to the active controller.
        session_timeout_ms: the time limit of a registration or heartbeat, ``broker.session.timeout.ms``.
        client: the client whose requests are forwarded; None for the broker's own requests.
    """

    def __init__(
        self, channel: ControllerChannel, *, session_timeout_ms: int, client: ForwardedClient | None = None
    ) -> None:
        self._channel = channel
        self._session_timeout_ms = session_timeout_ms
        self._client = client

    def on_behalf_of(self, client: ForwardedClient) -> RemoteControllerGateway:
        """Return a gateway that forwards the requests of a client in its name."""
        return RemoteControllerGateway(self._channel, session_timeout_ms=self._session_timeout_ms, client=client)

    # Sending

    async def send(self, request: Request[R]) -> R:
        """Send a request. Its time limit, if it has one that the controller observes, is that of the response, too."""
        timeout_ms = 0 if request.api_key == _UPDATE_FEATURES else getattr(request, "timeout_ms", 0)
        return await self._send(request, timeout_ms=_limit(timeout_ms))

    async def _send(
        self,
        request: Request[R],
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
        purpose: Purpose = Purpose.CLIENTS,
    ) -> R:
        """Send a request to the active controller, in an Envelope if it is a client's."""
        client = self._client
        if client is None:
            return await self._channel.send(
                request, purpose, max_version=version, timeout_ms=timeout_ms, is_refusal=_is_not_controller
            )
        if client.header.api_key == request.api_key:
            version = client.header.api_version
        return await self._forward(request, client, version, timeout_ms)

    async def _forward(
        self, request: Request[R], client: ForwardedClient, version: int | None, timeout_ms: float | None
    ) -> R:
        from triokafka.protocol.api.envelope import EnvelopeRequest

        version = request.versions.max if version is None else version
        header, world = client.header, client.world
        is_large = client.size > LARGE_BYTES

        def encode() -> bytes:
            ids = header.correlation_id, header.client_id
            parts = encode_request(request, version=version, correlation_id=ids[0], client_id=ids[1])
            return b"".join(parts)[SIZE_BYTES:]

        envelope = EnvelopeRequest(
            request_data=await world.run_in_thread(encode) if is_large else encode(),
            request_principal=encode_principal(client.principal, token_authenticated=client.token_authenticated),
            client_host_address=encode_address(client.peer[0]),
        )
        answer = await self._channel.send(
            envelope, Purpose.CLIENTS, timeout_ms=timeout_ms, is_refusal=_is_not_controller
        )
        data = answer.response_data
        if answer.error_code or data is None:
            raise for_code(answer.error_code)("the active controller refused the forwarded request")
        response_type: type[R] = request.response_type

        def decode() -> R:
            return decode_response(response_type, data, version=version)[1]

        return await world.run_in_thread(decode) if is_large else decode()

    async def _checked(self, request: Request[R], purpose: Purpose, *, timeout_ms: float | None = None) -> R:
        """Send a request whose response has one error code, and raise it."""
        response: Any = await self._send(request, timeout_ms=timeout_ms, purpose=purpose)
        if response.error_code:
            message = getattr(response, "error_message", None)
            raise for_code(response.error_code)(message or "the active controller refused the request")
        return response  # type: ignore[no-any-return]

    # Topics and partitions

    async def create_topics(
        self,
        request: CreateTopicsRequest,
        *,
        hidden_configs: frozenset[str] = frozenset(),
        charge: MutationCharge = no_charge,
    ) -> CreateTopicsResponse:
        """Create topics. The controller charges the client's quota; ``charge`` is for a controller on this node."""
        response = await self.send(request)
        for topic in response.topics:
            if topic.name in hidden_configs and not topic.error_code:
                topic.topic_config_error_code = errors.TopicAuthorizationFailedError.code
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        return response

    async def delete_topics(
        self, request: DeleteTopicsRequest, *, version: int = 6, charge: MutationCharge = no_charge
    ) -> DeleteTopicsResponse:
        """Delete topics."""
        return await self._send(request, version=version, timeout_ms=_limit(request.timeout_ms))

    async def create_partitions(
        self, request: CreatePartitionsRequest, *, charge: MutationCharge = no_charge
    ) -> CreatePartitionsResponse:
        """Add partitions to topics."""
        return await self.send(request)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change in-sync sets. The caller repeats a request that failed with the newest state of its partitions."""
        return await self._send(request, timeout_ms=_ALTER_PARTITION_TIMEOUT_MS, purpose=Purpose.REPLICAS)

    # Configuration

    async def alter_configs(
        self, request: AlterConfigsRequest, *, denied: DeniedResources | None = None
    ) -> AlterConfigsResponse:
        """Replace the whole configuration of resources."""
        from triokafka.protocol.api.alter_configs import AlterConfigsRequest

        allowed = AlterConfigsRequest(
            resources=_allowed(request.resources, denied), validate_only=request.validate_only
        )
        response = await self._send(allowed)
        response.responses = _merged(request.resources, response.responses, denied)
        return response

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, denied: DeniedResources | None = None
    ) -> IncrementalAlterConfigsResponse:
        """Change single configuration keys of resources."""
        from triokafka.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest

        allowed = IncrementalAlterConfigsRequest(
            resources=_allowed(request.resources, denied), validate_only=request.validate_only
        )
        response = await self._send(allowed)
        response.responses = _merged(request.resources, response.responses, denied)
        return response

    # The cluster

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """Allocate the next block of producer ids to the broker."""
        from triokafka.protocol.api.allocate_producer_ids import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        response = await self._checked(request, Purpose.REPLICAS)
        return ProducerIdBlock(response.producer_id_start, response.producer_id_len)

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """Register the broker, fenced; return its broker epoch."""
        from triokafka.broker_stub.gateway.lifecycle_messages import registration_request

        request = registration_request(registration)
        response = await self._checked(request, Purpose.LIFECYCLE, timeout_ms=self._session_timeout_ms)
        return response.broker_epoch

    async def broker_heartbeat(self, beat: BrokerHeartbeat) -> HeartbeatReply:
        """Send the broker's heartbeat."""
        from triokafka.broker_stub.gateway.lifecycle_messages import heartbeat_request

        request = heartbeat_request(beat)
        response = await self._checked(request, Purpose.LIFECYCLE, timeout_ms=self._session_timeout_ms)
        return HeartbeatReply(response.is_caught_up, response.is_fenced, response.should_shut_down)

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Report the log directories of replicas."""
        return await self._checked(request, Purpose.REPLICAS, timeout_ms=self._session_timeout_ms)

    async def register_controller(self, registration: ControllerRegistration) -> None:
        """Register a controller."""
        from triokafka.broker_stub.gateway.lifecycle_messages import controller_registration_request

        request = controller_registration_request(registration)
        await self._checked(request, Purpose.REPLICAS, timeout_ms=self._session_timeout_ms)


def _is_not_controller(response: Response) -> bool:
    count = error_counter(type(response))
    codes: dict[int, int] = {}
    if count is not None:
        count(response, codes)
    return _NOT_CONTROLLER in codes


def _limit(timeout_ms: int) -> float | None:
    """Return the time limit of a request from its ``timeout_ms``; None for the default limit."""
    return timeout_ms if timeout_ms > 0 else None


def _allowed(resources: list[Any], denied: DeniedResources | None) -> list[Any]:
    return [one for one in resources if (one.resource_type, one.resource_name) not in (denied or {})]


def _merged(
    resources: list[Any], responses: list[AlterConfigsResourceResponse], denied: DeniedResources | None
) -> list[AlterConfigsResourceResponse]:
    """Return the results in the order of the request, with those of the denied resources."""
    from triokafka.protocol.api.alter_configs import AlterConfigsResourceResponse

    if not denied:
        return responses
    found = {(one.resource_type, one.resource_name): one for one in responses}
    for (resource_type, name), error in denied.items():
        found[resource_type, name] = AlterConfigsResourceResponse(
            error_code=error.code, error_message=error.message, resource_type=resource_type, resource_name=name
        )
    keys = dict.fromkeys((one.resource_type, one.resource_name) for one in resources)
    return [found[key] for key in keys if key in found]
