"""SCRAM: proof of a password without sending it (RFC 5802, RFC 7677), as Kafka has it (KIP-84).

Kafka does not normalize names and passwords (SASLprep): they are UTF-8.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final

from triokafka.errors import SaslAuthenticationFailedError
from triokafka.security.delegation_tokens import TOKEN_AUTH, DelegationTokens
from triokafka.security.scram_credentials import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramCredentials,
    ScramMechanism,
    salt_password,
    stored_credential,
)
from triokafka.security.secret import reveal

_MOST_ITERATIONS: Final = 200_000
"""A server that asks for more could stop the client. Kafka stores credentials of at most 16,384."""
_NONCE_BYTES: Final = 24
_GS2_HEADER: Final = "n,,"

_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)"
_VALUE: Final = r"[^\x00,]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization>(?:[^\x00,=]|=2C|=3D)+))?,"
    rf"(?P<bare>n=(?P<user>(?:[^\x00,=]|=2C|=3D)+),r=(?P<nonce>{_PRINTABLE})(?P<extensions>(?:,[A-Za-z]+={_VALUE})*))"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}})(?:,.*)?"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:,[A-Za-z]={_VALUE})*),p=(?P<proof>{_BASE64})"
)


def make_credential(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential that a server stores for a password."""
    salted = salt_password(mechanism, reveal(password).encode(), salt, iterations)
    return stored_credential(mechanism, salted, salt, iterations)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


class ScramClient:
    """The client's end.

    Args:
        random_bytes: returns random bytes for the nonce.
        extensions: pairs that Kafka's servers understand, such as ``tokenauth=true`` for delegation tokens.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        *,
        random_bytes: Callable[[int], bytes],
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._user = user
        self._password = password
        self._extensions = dict(extensions or {})
        self._nonce = _text(random_bytes(_NONCE_BYTES))
        self._bare = ""
        self._signature: bytes | None = None

    @property
    def is_slow(self) -> bool:
        """Whether the next step hashes the password, as often as the server asks for."""
        return bool(self._bare) and self._signature is None

    def first(self) -> bytes:
        name = self._user.replace("=", "=3D").replace(",", "=2C")
        extensions = "".join(f",{key}={value}" for key, value in self._extensions.items())
        self._bare = f"n={name},r={self._nonce}{extensions}"
        return (_GS2_HEADER + self._bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        text = challenge.decode("utf-8", "replace")
        if self._signature is None:
            return self._prove(text)
        self._check(text, self._signature)
        return None

    def _prove(self, server_first: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None:
            raise SaslAuthenticationFailedError("the broker's first SCRAM message is invalid")
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslAuthenticationFailedError("the broker's SCRAM nonce does not continue the client's")
        if not MIN_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise SaslAuthenticationFailedError(
                f"the broker asks for {iterations} SCRAM iterations; allowed are {MIN_ITERATIONS} to {_MOST_ITERATIONS}"
            )
        hash_name = self._mechanism.hash_name
        salt = base64.b64decode(match["salt"])
        salted = salt_password(self._mechanism, reveal(self._password).encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        credential = stored_credential(self._mechanism, salted, salt, iterations)
        unproved = f"c={_text(_GS2_HEADER.encode())},r={nonce}"
        signed = ",".join((self._bare, server_first, unproved)).encode()
        proof = _xor(client_key, hmac.digest(credential.stored_key, signed, hash_name))
        self._signature = hmac.digest(credential.server_key, signed, hash_name)
        return f"{unproved},p={_text(proof)}".encode()

    def _check(self, server_final: str, signature: bytes) -> None:
        if server_final.startswith("e="):
            raise SaslAuthenticationFailedError(f"the broker refused the SCRAM proof: {server_final[2:100]}")
        try:
            given = base64.b64decode(server_final.removeprefix("v=").partition(",")[0], validate=True)
        except binascii.Error:
            given = b""
        if not server_final.startswith("v=") or not hmac.compare_digest(given, signature):
            raise SaslAuthenticationFailedError(
                "the broker did not prove that it knows the user's credentials: it may be an impostor"
            )


class ScramServer:
    """The server's end.

    An unknown user gets a made-up salt and fails at the end, as with a wrong password, so that a client cannot find out
    which users exist.

    Args:
        tokens: the delegation tokens, with which a client may log in as their owner (KIP-48); None for no tokens.
        unknown_user_key: a random key of this server, from which the made-up salts derive.
    """

    is_slow: Final = False

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: ScramCredentials,
        *,
        random_bytes: Callable[[int], bytes],
        unknown_user_key: bytes,
        tokens: DelegationTokens | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._nonce = _text(random_bytes(_NONCE_BYTES))
        self._unknown_user_key = unknown_user_key
        self._claimed: str | None = None
        self._known = False
        self._credential: ScramCredential | None = None
        self._so_far = ""
        self.user: str | None = None
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def evaluate(self, token: bytes) -> bytes:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise SaslAuthenticationFailedError("Invalid SCRAM message: not UTF-8") from None
        if self._credential is None:
            return self._first(text)
        if self.user is not None:
            raise SaslAuthenticationFailedError("Invalid SCRAM message: the exchange is complete")
        return self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise SaslAuthenticationFailedError("Invalid SCRAM client first message format")
        user = match["user"].replace("=2C", ",").replace("=3D", "=")
        authorization = match["authorization"]
        if authorization is not None and authorization.replace("=2C", ",").replace("=3D", "=") != user:
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        credential = self._look_up(user, match["extensions"])
        self._known = credential is not None
        if credential is None:
            salt = hmac.digest(self._unknown_user_key, user.encode(), "sha256")[:20]
            nothing = bytes(hashlib.new(self._mechanism.hash_name).digest_size)
            credential = ScramCredential(salt, nothing, nothing, MIN_ITERATIONS)
        self._credential = credential
        self._nonce = match["nonce"] + self._nonce
        reply = f"r={self._nonce},s={_text(credential.salt)},i={credential.iterations}"
        self._so_far = f"{match['bare']},{reply}"
        return reply.encode()

    def _look_up(self, name: str, extensions: str) -> ScramCredential | None:
        """Return the credential of a user or of a delegation token, and note as whom the client logs in."""
        self._claimed = name
        pairs = dict(pair.split("=", 1) for pair in extensions.split(",") if pair)
        if pairs.get(TOKEN_AUTH, "").lower() != "true":
            return self._credentials.credential(self._mechanism, name)
        self.token_authenticated = True
        login = None if self._tokens is None else self._tokens.login(self._mechanism, name)
        if login is None:
            return None
        self._claimed, self.expires_at_ms = login.owner, login.expires_at_ms
        return login.credential

    def _final(self, text: str, credential: ScramCredential) -> bytes:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None or match["nonce"] != self._nonce:
            raise SaslAuthenticationFailedError("Invalid SCRAM client final message")
        hash_name = self._mechanism.hash_name
        signed = f"{self._so_far},{match['unproved']}".encode()
        proof = base64.b64decode(match["proof"])
        signature = hmac.digest(credential.stored_key, signed, hash_name)
        client_key = _xor(proof, signature) if len(proof) == len(signature) else b""
        stored = hashlib.new(hash_name, client_key).digest()
        if not hmac.compare_digest(stored, credential.stored_key) or not self._known:
            raise SaslAuthenticationFailedError(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism"
                f" {self._mechanism.mechanism_name}"
            )
        self.user = self._claimed
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, hash_name))
