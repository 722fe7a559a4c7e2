"""Signed assertions with which a client asks for a token (RFC 7523): from a file, or made from a private key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.oauth.verification_keys import require_jose
from triokafka.security.secret import reveal
from triokafka.world import World
from triokafka.world.os_storage import storage_with

ALGORITHMS: Final = ("RS256", "ES256")
"""Algorithms for signing, as in Kafka."""


class AssertionFile(NamedTuple):
    """A file with an assertion that another program keeps fresh; it is read for every token."""

    path: str
    option: str

    def make(self, world: World) -> str:
        """Return the assertion. Raises `ConfigurationError`."""
        return _text(world, self.path, self.option).strip()


class SignedAssertion(NamedTuple):
    """An assertion that is signed here. Key and template are read for every token, so that they can be replaced.

    ``claims`` are the fixed ones (``iss``, ``sub``, ``aud``); those of the template override them.
    """

    algorithm: str
    key_file: str
    passphrase: str | None
    template_file: str | None
    claims: Mapping[str, str]
    exp_seconds: int
    nbf_seconds: int
    has_id: bool
    named: Callable[[str], str]
    """From Kafka's name of an option to that of the user, for messages."""

    def make(self, world: World) -> str:
        """Return a new assertion.

        Raises:
            ConfigurationError: the key or the template cannot be used. The message shows neither.
        """
        require_jose()
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import ECKey, RSAKey

        option = self.named("sasl.oauthbearer.assertion.private.key.file")
        content = _text(world, self.key_file, option)
        template = self._template(world)
        now = world.wall_ms() // 1000
        claims: dict[str, Any] = {**self.claims, **template.get("payload", {})}
        claims |= {"iat": now, "exp": now + self.exp_seconds, "nbf": now - self.nbf_seconds}
        if self.has_id:
            claims["jti"] = str(world.uuid())
        header = {**template.get("header", {}), "alg": self.algorithm, "typ": "JWT"}
        kind = ECKey if self.algorithm.startswith("ES") else RSAKey
        password = None if self.passphrase is None else reveal(self.passphrase)
        try:
            key = kind.import_key(content, password=password)
            return str(jwt.encode(header, claims, key, algorithms=[self.algorithm]))
        except (JoseError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"{option}: {self.key_file} is not a private key for {self.algorithm} in PEM, or its passphrase is"
                f" wrong ({type(error).__name__})"
            ) from None

    def _template(self, world: World) -> dict[str, dict[str, Any]]:
        if self.template_file is None:
            return {}
        option = self.named("sasl.oauthbearer.assertion.template.file")
        try:
            found = json.loads(_text(world, self.template_file, option))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not all(
            isinstance(found.get(key, {}), dict) for key in ("header", "payload")
        ):
            raise ConfigurationError(
                f'{option}: {self.template_file} is not JSON like {{"header": {{…}}, "payload": {{…}}}}'
            )
        return found


Assertion = AssertionFile | SignedAssertion


def _text(world: World, path: str, option: str) -> str:
    try:
        return storage_with(world.storage, path).read_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text"
        raise ConfigurationError(f"{option}: {path} cannot be read: {why}") from None
