"""The client of the quorum with connections to its other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triokafka.broker_stub.raft.election_state import QuorumStateStore
from triokafka.broker_stub.raft.peer_channels import PeerChannel
from triokafka.broker_stub.raft.raft_client import RaftClient
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.raft_listener import RaftListener
from triokafka.broker_stub.raft.raft_log_interface import RaftLog
from triokafka.structs import Node
from triokafka.world import World

if TYPE_CHECKING:  # imported when there are other nodes, or when a listener has TLS or SASL
    from triokafka.network.traffic import ChannelTotals
    from triokafka.security.client_security import ClientSecurity


def quorum_client(
    world: World,
    config: RaftConfig,
    log: RaftLog,
    quorum_state: QuorumStateStore,
    listener: RaftListener,
    *,
    security: ClientSecurity | None = None,
    traffic: ChannelTotals | None = None,
) -> RaftClient:
    """Return a client that reaches the other nodes over `NodeChannel`. Raises as `RaftClient`.

    ``security`` is that of the controllers' listener; PLAINTEXT when None. ``traffic`` counts requests and responses.
    """

    def connect(node: Node) -> PeerChannel:
        from triokafka.network.node_channel import NodeChannel  # a quorum of one needs none

        client_id = f"raft-client-{config.node_id}"
        return NodeChannel(
            node,
            world=world,
            client_id=client_id,
            request_timeout_ms=config.request_timeout_ms,
            security=security,
            traffic=traffic,
        )

    return RaftClient(world, config, log, quorum_state, listener, connect)
