"""TLS settings of a client or a listener, and the `ssl.SSLContext` that they make.

Certificates and keys are PEM files, PEM text, or stores (`key_stores`). A changed file takes effect with the next
connection.
"""

from __future__ import annotations

import logging
import re
import ssl
from dataclasses import dataclass, field
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.certificate_identity import CertificateIdentity, identity_of
from triokafka.security.cipher_names import UnknownCipherError, choose_ciphers
from triokafka.security.key_stores import (
    PEM_MARK,
    KeyPair,
    Password,
    StoreFile,
    own_certificate,
    password_of,
    trusted_certificates,
)
from triokafka.security.secret import reveal
from triokafka.world import Storage
from triokafka.world.os_storage import storage_with
from triokafka.world.pem_memory import load_own_certificate, load_revocation_list

logger = logging.getLogger(__name__)

_BASE64: Final = re.compile(r"[A-Za-z0-9+/=\s]{64,}")
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsNames(NamedTuple):
    """The options' names for messages; those of clients by default."""

    trust: str = "ssl_cafile"
    trust_password: str = "ssl_truststore_password"
    chain: str = "ssl_certfile"
    store_password: str = "ssl_keystore_password"
    key: str = "ssl_keyfile"
    password: str = "ssl_password"
    revoked: str = "ssl_crlfile"
    ciphers: str = "ssl_ciphers"


CLIENTS_NAMES: Final = TlsNames()
KAFKAS_NAMES: Final = TlsNames(
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.crl.location",
    "ssl.cipher.suites",
)
"""Kafka's names, for brokers. ``ssl.crl.location`` is librdkafka's."""


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """The TLS options of one end, as `ClientOptions` describes them. Each store is a path or the text of a PEM file.

    ``client_auth`` is a listener's: ``required``, ``requested`` or ``none``.
    """

    trust: str | None = None
    trust_password: Password = field(default=None, repr=False)
    chain: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    password: Password = field(default=None, repr=False)
    store_password: Password = field(default=None, repr=False)
    """The password of a store; that of the key when None."""
    revoked: str | None = None
    ciphers: str | None = None
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    check_hostname: bool = True
    client_auth: str = "none"
    names: TlsNames = CLIENTS_NAMES


class TlsContexts:
    """Makes the context of one end, and makes it again when a file has changed.

    Args:
        settings: the options, or a finished context, which is used as it is.
        server_side: whether the context is a listener's.
    """

    def __init__(self, settings: TlsSettings | ssl.SSLContext, *, server_side: bool = False) -> None:
        self._settings = settings
        self._server_side = server_side
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[int, ...] = ()

    @property
    def check_hostname(self) -> bool:
        """Whether a client checks the broker's name against its certificate."""
        return self._settings.check_hostname

    @property
    def settings(self) -> TlsSettings | ssl.SSLContext:
        """The present settings."""
        return self._settings

    def reconfigure(self, settings: TlsSettings, storage: Storage) -> None:
        """Use other settings for new connections; those that exist continue.

        Raises:
            ConfigurationError: the settings cannot be used, and the previous ones stay.
        """
        stamps = _stamps(settings, storage)
        context = _make_context(settings, storage, server_side=self._server_side)
        self._settings, self._context, self._stamps = settings, context, stamps

    def context(self, storage: Storage) -> ssl.SSLContext:
        """Return the context for a new connection.

        When a changed file cannot be used, the previous context stays in use.

        Raises:
            ConfigurationError: a file cannot be read or has the wrong content.
        """
        settings = self._settings
        if isinstance(settings, ssl.SSLContext):
            return settings
        stamps = _stamps(settings, storage)
        if self._context is None or stamps != self._stamps:
            try:
                self._context = _make_context(settings, storage, server_side=self._server_side)
            except ConfigurationError as error:
                if self._context is None:
                    raise
                logger.error("TLS: a changed file cannot be used, the previous certificate stays in use: %s", error)
            self._stamps = stamps
        return self._context


def own_identity(settings: TlsSettings, storage: Storage) -> CertificateIdentity | None:
    """Return whom the own certificate names; None without one. Raises `ConfigurationError`."""
    return None if settings.chain is None else identity_of(_key_pair(settings, storage).chain)


def check_handshake(listener: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Check that a client accepts a listener's certificate, whatever its host name, and the listener the client's.

    Raises:
        ConfigurationError: one side refuses the other.
    """
    to_client, to_listener = ssl.MemoryBIO(), ssl.MemoryBIO()
    client.check_hostname, checks = False, client.check_hostname
    try:
        near = client.wrap_bio(to_client, to_listener)
        far = listener.wrap_bio(to_listener, to_client, server_side=True)
        for side in (near, far) * 4:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as error:
        raise ConfigurationError(f"the nodes would refuse the new certificate: {_why(error)}") from None
    finally:
        client.check_hostname = checks


def _stamps(settings: TlsSettings, storage: Storage) -> tuple[int, ...]:
    found = []
    for path in (settings.trust, settings.chain, settings.key, settings.revoked):
        if path is not None and not _is_pem_text(path):
            try:
                found.append(storage_with(storage, path).modified_ms(path))
            except OSError:
                found.append(-1)
    return tuple(found)


def _is_pem_text(text: str) -> bool:
    # Tools write remarks before the first part, and no path has this in its name.
    return PEM_MARK.decode() in reveal(text)


def _may_be_key(text: str) -> bool:
    """Whether a text that is not a file may be a private key without its first line, which must not be shown."""
    return "\n" in text or "\\n" in text or _BASE64.fullmatch(text) is not None


def _make_context(settings: TlsSettings, storage: Storage, *, server_side: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _limit_versions(context, settings.protocols)
    if settings.ciphers:
        try:
            choose_ciphers(context, settings.ciphers)
        except UnknownCipherError as error:
            raise ConfigurationError(f"{settings.names.ciphers}={settings.ciphers!r}: {error}") from None
    if server_side:
        context.verify_mode = {
            "required": ssl.CERT_REQUIRED,
            "requested": ssl.CERT_OPTIONAL,
            "none": ssl.CERT_NONE,
        }[settings.client_auth]
    else:
        context.check_hostname = settings.check_hostname
        context.verify_mode = ssl.CERT_REQUIRED
    _load_trust(context, settings, storage, server_side=server_side)
    if settings.chain is not None:
        pair = _key_pair(settings, storage)
        try:
            load_own_certificate(context, pair.chain, pair.key, pair.password)
        except (ssl.SSLError, ValueError) as error:
            raise _unusable(settings, pair, error) from None
    elif server_side:
        raise ConfigurationError(
            "a listener with TLS needs a certificate: set ssl.keystore.location, or ssl.keystore.certificate.chain and"
            " ssl.keystore.key"
        )
    if settings.revoked is not None:
        try:
            load_revocation_list(context, _read(settings.revoked, storage, settings.names.revoked))
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"{settings.names.revoked}: {_named(settings.revoked)} is not a revocation list in PEM: {_why(error)}"
            ) from None
    return context


def _limit_versions(context: ssl.SSLContext, protocols: tuple[str, ...]) -> None:
    known = [_VERSIONS[name] for name in protocols if name in _VERSIONS]
    if not known:
        raise ConfigurationError(f"ssl.enabled.protocols={','.join(protocols)}: supported are {', '.join(_VERSIONS)}")
    context.minimum_version, context.maximum_version = min(known), max(known)


def _load_trust(context: ssl.SSLContext, settings: TlsSettings, storage: Storage, *, server_side: bool) -> None:
    if settings.trust is None:
        if server_side and settings.client_auth != "none":
            raise ConfigurationError(
                f"ssl.client.auth={settings.client_auth} needs the authorities that sign clients' certificates: set"
                " ssl.truststore.location or ssl.truststore.certificates"
            )
        if not server_side:
            context.load_default_certs()
        return
    names = settings.names
    file = StoreFile(
        _read(settings.trust, storage, names.trust), _named(settings.trust), names.trust, names.trust_password
    )
    content = trusted_certificates(file, password_of(settings.trust_password, names.trust_password))
    try:
        context.load_verify_locations(cadata=content.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise file.error(f"contains no certificates: {_why(error)}") from None


def _key_pair(settings: TlsSettings, storage: Storage) -> KeyPair:
    assert settings.chain is not None
    names = settings.names
    chain = _read(settings.chain, storage, names.chain)
    password = password_of(settings.password, names.password)
    store_password = password_of(settings.store_password, names.store_password)
    file = StoreFile(chain, _named(settings.chain), names.chain, names.store_password)
    key = b"" if settings.key is None else _read(settings.key, storage, names.key)
    if settings.key is None or PEM_MARK not in key:
        pair = own_certificate(
            file,
            store_password=password if store_password is None else store_password,
            key_password=password,
            key_option=names.password,
        )
        if pair is not None:
            return pair
    if b"PRIVATE KEY-----" not in chain + key:
        raise file.error(f"contains no private key; name the file with {names.key}")
    return KeyPair(chain, key, password)


def _unusable(settings: TlsSettings, pair: KeyPair, error: Exception) -> ConfigurationError:
    """Return the error for a certificate and key that OpenSSL refuses."""
    names = settings.names
    option, source = (names.key, settings.key) if settings.key is not None else (names.chain, settings.chain)
    why = _why(error)
    is_encrypted = b"ENCRYPTED" in pair.chain + pair.key
    if is_encrypted and not pair.password:
        return ConfigurationError(
            f"{option}: the private key in {_named(source or '')} is encrypted: set its password with {names.password}"
        )
    if "MISMATCH" in why:
        return ConfigurationError(
            f"{option}: the private key in {_named(source or '')} does not belong to the first certificate of"
            f" {names.chain}"
        )
    if "TOO_WEAK" in why or "TOO_SMALL" in why:
        return ConfigurationError(
            f"{names.chain}: OpenSSL refuses the certificate in {_named(settings.chain or '')} as too weak ({why}): use"
            " one with a signature by SHA-256 and an RSA key of at least 2048 bits, or an elliptic curve"
        )
    if is_encrypted:
        return ConfigurationError(
            f"{option}: the private key in {_named(source or '')} cannot be opened ({why}): its password"
            f" ({names.password}) is wrong, or the file is damaged"
        )
    return ConfigurationError(
        f"{names.chain}: the certificate and the private key in {_named(settings.chain or '')} cannot be used ({why}):"
        " one of them is damaged or truncated"
    )


def _read(source: str, storage: Storage, option: str) -> bytes:
    if _is_pem_text(source):
        return reveal(source).replace("\\n", "\n").encode()
    path = reveal(source)
    try:
        return storage_with(storage, path).read_file(path)
    except OSError as error:
        why = error.strerror or type(error).__name__
    # Outside the handler: the error of the system has the path, which may be a key.
    if _may_be_key(path):
        raise ConfigurationError(
            f"{option}: the value is neither PEM nor the path of a file; PEM has the line {PEM_MARK.decode()}…"
        )
    raise ConfigurationError(f"{option}: {path} cannot be read: {why}")


def _named(source: str) -> str:
    return "the PEM text" if _is_pem_text(source) else reveal(source)


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__
