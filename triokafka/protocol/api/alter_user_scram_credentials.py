"""AlterUserScramCredentials (API key 51): set and remove SCRAM credentials of users (KIP-554).

Version 0; flexible.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int8, Int32, String


class ScramCredentialDeletion(Struct):
    """A credential to remove."""

    name: str = field(String, doc="The name of the user.")
    mechanism: int = field(Int8, doc="1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512.")


class ScramCredentialUpsertion(Struct):
    """A credential to set. The password itself is not sent."""

    name: str = field(String, doc="The name of the user.")
    mechanism: int = field(Int8, doc="1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512.")
    iterations: int = field(Int32, doc="The number of iterations: 4096 to 16384.")
    salt: bytes = field(Bytes, doc="A random salt from the client.")
    salted_password: bytes = field(Bytes, doc="The salted password (RFC 5802), from which the broker derives its keys.")


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"], api_key=51, versions="0", flexible="0+"
):
    """Set and remove credentials; at most one change per user."""

    deletions: list[ScramCredentialDeletion] = field(Array(ScramCredentialDeletion), doc="The credentials to remove.")
    upsertions: list[ScramCredentialUpsertion] = field(Array(ScramCredentialUpsertion), doc="The credentials to set.")


class AlterUserScramCredentialsResult(Struct):
    """The outcome for one user."""

    user: str = field(String, doc="The name of the user.")
    error_code: int = fields.scram_error_code()
    error_message: str | None = fields.error_message(nullable="0+")


class AlterUserScramCredentialsResponse(Response, api_key=51, versions="0", flexible="0+"):
    """One result per user."""

    throttle_time_ms: int = fields.throttle_time_ms()
    results: list[AlterUserScramCredentialsResult] = field(
        Array(AlterUserScramCredentialsResult), doc="The results, one per user."
    )
