"""Who a connection belongs to: asked once, before its first request is read.

A plaintext listener has nothing to ask. TLS and SASL find their place here: a stage may talk over the stream, put
another in its place, and name the principal whose requests these are from then on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.errors import KafkaError
from triokafka.named_tuple import NamedTuple
from triokafka.world import Stream


class AuthenticationFailedError(KafkaError):
    """The peer could not say who it is; the connection is closed, and the message is the reason for the log."""


class Authenticated(NamedTuple):
    """What requests are read from, and on whose behalf."""

    stream: Stream
    principal: str


class Authentication(ABC):
    """The stage between accepting a connection and reading its first request."""

    @abstractmethod
    async def authenticate(self, stream: Stream, listener: str) -> Authenticated:
        """Find out who is at the other end of a connection to ``listener``.

        Reads nothing beyond its own exchange. However long it waits, a connection that is idle for longer than
        ``connections.max.idle.ms`` is closed. If cancelled, the connection is of no further use.

        Raises:
            AuthenticationFailedError: the peer is not let in.
            OSError: the connection broke.
        """


class NoAuthentication(Authentication):
    """Everybody is ``User:ANONYMOUS``."""

    async def authenticate(self, stream: Stream, listener: str) -> Authenticated:
        return Authenticated(stream, ANONYMOUS)
