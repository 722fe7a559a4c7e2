"""Authentication of a connection, once, before the broker reads its first request.

A plaintext listener does not authenticate clients. This is the extension point for TLS and SASL: an implementation may
exchange messages over the stream, replace the stream, and name the principal of the connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import trio

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.errors import KafkaError
from triokafka.named_tuple import NamedTuple
from triokafka.world import Stream

if TYPE_CHECKING:  # imported when a listener has SASL
    from triokafka.broker_stub.network.sasl_session import SaslSession


class AuthenticationFailedError(KafkaError):
    """The peer failed to authenticate. The broker closes the connection and logs the message."""


class Authenticated(NamedTuple):
    """The stream from which the broker reads requests, and the principal of the connection."""

    stream: Stream
    principal: str
    session: SaslSession | None = None
    """The SASL exchange that follows over the stream; it names the principal then."""


class Authentication(ABC):
    """The stage between accepting a connection and reading its first request."""

    @abstractmethod
    async def authenticate(self, stream: Stream, listener: str) -> Authenticated:
        """Authenticate the peer of a connection to ``listener``.

        Reads nothing beyond its own exchange. The broker closes the connection if it is idle for longer than
        ``connections.max.idle.ms``. After a cancellation the connection is unusable.

        Raises:
            AuthenticationFailedError: the broker refuses the peer.
            OSError: the connection broke.
        """

    async def take_turn(self, stream: Stream) -> None:
        """Wait until the broker may work for a connection that has not logged in. The default does not wait."""
        return

    def failed(self, stream: Stream) -> None:
        """Note that the peer failed to authenticate. The default does nothing."""
        return

    async def prepare(self) -> None:
        """Get ready before the first listener opens. May be called several times; the default needs nothing.

        Raises:
            ConfigurationError: something that the configuration names is not there.
        """
        return

    async def run(self) -> None:
        """Do periodic work while the broker serves, until cancelled. The default has none, and returns at once."""
        return


class NoAuthentication(Authentication):
    """Accepts every connection as ``User:ANONYMOUS``."""

    async def authenticate(self, stream: Stream, listener: str) -> Authenticated:
        return Authenticated(stream, ANONYMOUS)


async def delay_refusal(authentication: Authentication, stream: Stream, delay_ms: int) -> None:
    """Slow down peers that guess passwords (KIP-306), and let other peers go first."""
    authentication.failed(stream)
    await trio.sleep(delay_ms / 1000)
    await authentication.take_turn(stream)
