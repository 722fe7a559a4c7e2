"""DescribeUserScramCredentials (API key 50): which SCRAM credentials users have (KIP-554). No secret is in the answer.

Version 0; flexible.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, Int32, String


class UserName(Struct):
    """A user."""

    name: str = field(String, doc="The name of the user.")


class DescribeUserScramCredentialsRequest(
    Request["DescribeUserScramCredentialsResponse"], api_key=50, versions="0", flexible="0+"
):
    """Ask for the credentials of some users, or of all."""

    users: list[UserName] | None = field(
        Array(UserName), nullable="0+", doc="The users; null or empty for all that have a credential."
    )


class CredentialInfo(Struct):
    """One credential of a user, without its secrets."""

    mechanism: int = field(Int8, doc="1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512.")
    iterations: int = field(Int32, doc="The number of iterations.")


class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: str = field(String, doc="The name of the user.")
    error_code: int = fields.scram_error_code()
    error_message: str | None = fields.error_message(nullable="0+")
    credential_infos: list[CredentialInfo] = field(Array(CredentialInfo), doc="The credentials.")


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions="0", flexible="0+"):
    """One result per user."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = fields.scram_error_code()
    error_message: str | None = fields.error_message(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field(
        Array(DescribeUserScramCredentialsResult), doc="The results, one per user."
    )
