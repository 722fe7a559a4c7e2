"""Stored credentials of SCRAM users (RFC 5802, RFC 7677), and the interface through which a listener looks them up."""

from __future__ import annotations

import enum
import hashlib
import hmac
from typing import Final, Protocol

from triokafka.named_tuple import NamedTuple

MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384
"""Bounds of the iterations of a stored credential, as in Kafka."""


class ScramMechanism(enum.Enum):
    """A SCRAM mechanism, by Kafka's number in AlterUserScramCredentials (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The name in SaslHandshake: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash function's name for `hashlib`."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


class ScramCredential(NamedTuple):
    """A server's credential of one user and mechanism. It suffices to verify the password, not to log in elsewhere.

    The keys do not appear in the ``repr``.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class ScramCredentials(Protocol):
    """A lookup of SCRAM credentials, for instance over the cluster's metadata."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the credential of ``user``; None when the user has none of this mechanism. Does not wait."""


def salt_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the salted password (RFC 5802, ``Hi``). Takes milliseconds: that is its purpose."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def stored_credential(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential that a server stores for a salted password."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.hash_name)
    server_key = hmac.digest(salted_password, b"Server Key", mechanism.hash_name)
    return ScramCredential(salt, hashlib.new(mechanism.hash_name, client_key).digest(), server_key, iterations)
