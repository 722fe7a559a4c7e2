"""Addresses of the metadata quorum's leader, as the messages of the quorum have them (KIP-853)."""

from __future__ import annotations

from triokafka.protocol.message import Struct, field
from triokafka.protocol.primitives import Int32, String, UInt16


class LeaderEndpoint(Struct):
    """One listener of the quorum's leader."""

    name: str = field(String, versions="1+", doc="The listener's name.")
    host: str = field(String, versions="1+", doc="The host to connect to.")
    port: int = field(UInt16, versions="1+", doc="The port to connect to.")


class NodeEndpoint(Struct):
    """The address of the quorum's leader."""

    node_id: int = field(Int32, versions="1+", doc="The node's number.")
    host: str = field(String, versions="1+", doc="The host to connect to.")
    port: int = field(UInt16, versions="1+", doc="The port to connect to.")
