"""The public keys of an identity provider (JWKS, RFC 7517), and the signatures that they verify (RFC 7515).

The only module that verifies signatures, with the package joserfc. Only signatures with a key pair count: ``none`` is
refused, and so is every HMAC, because its key would be the provider's secret. A key is used only with algorithms of its
own kind, so that the text of a public key is no key for signatures.
"""

from __future__ import annotations

import base64
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from triokafka.errors import ConfigurationError
from triokafka.security.sasl.oauthbearer import InvalidTokenError, decode_part

if TYPE_CHECKING:
    from joserfc.jwk import Key
    from joserfc.jws import JWSRegistry

logger = logging.getLogger(__name__)

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
"""Accepted algorithms of signatures."""
_KINDS: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_SMALLEST_RSA_BITS: Final = 2048
_MOST_KEYS: Final = 100
_MOST_ATTEMPTS: Final = 8
"""Keys that are tried for a token without a key id."""


class UnknownKeyError(InvalidTokenError):
    """No key fits the token; ``kid`` is the id that it names. The provider may have published a new one."""

    def __init__(self, kid: str | None) -> None:
        named = "without a key id" if kid is None else f"with the key id {kid[:80]!r}"
        super().__init__(f"no key of the JWKS fits a token {named}")
        self.kid = kid


class UnusableKeysError(Exception):
    """The document is not a JWKS, or has no key that can verify signatures."""


def require_jose() -> None:
    """Raise `ConfigurationError` when the package for signatures is missing."""
    try:
        import joserfc  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "signed tokens of OAUTHBEARER need the package joserfc: pip install 'triokafka[oauth]'"
        ) from None


class VerificationKeys:
    """The keys of one JWKS document. Keys of other kinds, and RSA keys below 2048 bits, are left out.

    Raises:
        UnusableKeysError: see there.
    """

    def __init__(self, document: bytes) -> None:
        try:
            found = json.loads(document)
            listed = found["keys"] if isinstance(found, dict) else None
        except (ValueError, KeyError, RecursionError):
            listed = None
        if not isinstance(listed, list):
            raise UnusableKeysError("the document is not a JSON Web Key Set")
        self._keys: list[tuple[dict[str, Any], Key]] = []
        for parameters in listed[:_MOST_KEYS]:
            key = _imported(parameters)
            if key is not None:
                self._keys.append((parameters, key))
        if not self._keys:
            raise UnusableKeysError(f"none of the {len(listed)} keys of the JWKS can verify signatures")
        self._registry = _registry()

    def __len__(self) -> int:
        return len(self._keys)

    def verify(self, token: str) -> dict[str, Any]:
        """Return the claims of a token with a valid signature; they are not checked.

        Raises:
            UnknownKeyError: no key fits.
            InvalidTokenError: the token is malformed, not signed, or signed with another key.
        """
        from joserfc import jwt
        from joserfc.errors import JoseError

        parts = token.split(".")
        if len(parts) != 3:
            raise InvalidTokenError(f"a token has 3 parts, this one {len(parts)}")
        header = decode_part(parts[0])
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise InvalidTokenError(f"tokens signed with {str(algorithm)[:20]!r} are not accepted")
        candidates = self._candidates(algorithm, kid if isinstance(kid, str) else None)
        for key in candidates:
            try:
                return dict(jwt.decode(token, key, registry=self._registry).claims)
            except (JoseError, ValueError, TypeError) as error:
                failure = type(error).__name__
        raise InvalidTokenError(f"the signature does not verify ({failure})")

    def _candidates(self, algorithm: str, kid: str | None) -> list[Key]:
        kind, curve = _KINDS[algorithm[:2]], _CURVES.get(algorithm)
        found = [
            key
            for parameters, key in self._keys
            if parameters["kty"] == kind
            and (kid is None or parameters.get("kid") == kid)
            and parameters.get("alg", algorithm) == algorithm
            and (curve is None or parameters.get("crv") == curve)
        ]
        if not found:
            raise UnknownKeyError(kid)
        return found[:_MOST_ATTEMPTS]


def _registry() -> JWSRegistry:
    from joserfc.jws import JWSRegistry

    # Providers add header parameters of their own. Those that are critical are refused all the same.
    registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    registry.max_header_length = 16 << 10  # with a chain of certificates
    return registry


def _imported(parameters: Any) -> Key | None:
    """Return the public key of one entry; None for one that cannot verify signatures here."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    kinds: dict[str, type[RSAKey | ECKey | OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
    if not isinstance(parameters, dict) or parameters.get("use", "sig") != "sig":
        return None
    kind = kinds.get(str(parameters.get("kty")))
    if kind is None:
        return None
    public = {name: value for name, value in parameters.items() if name in ("kty", "crv", "x", "y", "n", "e")}
    try:
        if kind is RSAKey and (bits := _bits(public["n"])) < _SMALLEST_RSA_BITS:
            logger.warning("JWKS: an RSA key of %d bits is not used: %d are required", bits, _SMALLEST_RSA_BITS)
            return None
        key: RSAKey | ECKey | OKPKey = kind.import_key(public)
        _ = key.public_key  # raises for a point that is not on its curve
    except (JoseError, ValueError, TypeError, KeyError) as error:
        logger.warning("JWKS: a key of the kind %s cannot be used: %s", parameters["kty"], type(error).__name__)
        return None
    return key


def _bits(number: str) -> int:
    raw = base64.urlsafe_b64decode(number + "=" * (-len(number) % 4))
    return int.from_bytes(raw, "big").bit_length()
