"""TLS and SASL of a node: on its listeners, and on its connections to other brokers.

A node whose listeners are all PLAINTEXT imports none of the modules behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.config.listeners import ListenerSpec
    from triokafka.broker_stub.network.listener_security import ListenerSecurity
    from triokafka.security.client_security import ClientSecurity
    from triokafka.security.scram_credentials import ScramCredentials


def listener_security(
    config: BrokerConfig,
    listeners: tuple[ListenerSpec, ...],
    world: World,
    image: Callable[[], MetadataImage],
    scram_credentials: ScramCredentials | None,
) -> ListenerSecurity | None:
    """Return TLS and SASL of listeners; None when all are PLAINTEXT.

    Args:
        image: returns the metadata, for its SCRAM credentials and delegation tokens.
        scram_credentials: take precedence over those of the metadata.
    """
    if all(listener.security_protocol == "PLAINTEXT" for listener in listeners):
        return None
    from triokafka.broker_stub.metadata.delegation_tokens import delegation_tokens
    from triokafka.broker_stub.metadata.scram_credentials import MetadataScramCredentials
    from triokafka.broker_stub.network.listener_mechanisms import ScramLookups
    from triokafka.broker_stub.network.listener_security import ListenerSecurity

    scram = ScramLookups(scram_credentials, MetadataScramCredentials(image))
    tokens = delegation_tokens(config, image, world)
    return ListenerSecurity(config, listeners, world, scram=scram, tokens=tokens)


class NodeSecurity:
    """TLS and SASL of a node that is a broker. Takes the arguments of `listener_security`.

    ``listeners`` authenticates connections to this broker, ``peers`` its connections to other brokers; each is None
    for PLAINTEXT.
    """

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        image: Callable[[], MetadataImage],
        scram_credentials: ScramCredentials | None,
    ) -> None:
        self._world = world
        self.listeners = listener_security(config, config.broker_listeners, world, image, scram_credentials)
        self.peers: ClientSecurity | None = None
        if config.security_protocol_of(config.inter_broker_listener) != "PLAINTEXT":
            from triokafka.broker_stub.network.inter_broker_security import inter_broker_security

            self.peers = inter_broker_security(config)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use changed key stores and trust stores for new connections, in both directions."""
        if self.listeners is not None:
            self.listeners.reconfigure(config)
        if self.peers is not None:
            from triokafka.broker_stub.network.inter_broker_security import reconfigure_peers

            reconfigure_peers(self.peers, config, self._world.storage)
