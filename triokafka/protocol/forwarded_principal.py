"""The principal in an Envelope request (KIP-590): whose request a broker forwards. Version 0 only."""

from __future__ import annotations

from triokafka.protocol.embedded_message import EmbeddedMessage
from triokafka.protocol.message import field
from triokafka.protocol.primitives import Boolean, String


class DefaultPrincipalData(EmbeddedMessage, versions="0", flexible="0+"):
    """The principal of a client whose request a broker forwards to the controller (KIP-590)."""

    type: str = field(String, doc="The principal's type, as in ``User``.")
    name: str = field(String, doc="The principal's name.")
    token_authenticated: bool = field(Boolean, doc="Whether a delegation token authenticated the client.")
