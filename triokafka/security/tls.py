"""TLS settings of a client or a listener, and the `ssl.SSLContext` that they make.

Certificates and keys are PEM files, PEM text, or PKCS #12 files. A changed file takes effect with the next connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.secret import reveal
from triokafka.world import Storage
from triokafka.world.pem_memory import load_own_certificate, load_revocation_list

_PEM_MARK: Final = b"-----BEGIN "
_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = b"\x30"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

Password = str | Callable[[], str] | None


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
    """The password of a PKCS #12 file; that of the key when None."""
    revoked: str | None = None
    ciphers: str | None = None
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    check_hostname: bool = True
    client_auth: str = "none"


class _KeyPair(NamedTuple):
    chain: bytes
    key: bytes
    password: str | None
    authorities: bytes


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

    def context(self, storage: Storage) -> ssl.SSLContext:
        """Return the context for a new connection.

        When a changed file cannot be used, the previous context stays in use.

        Raises:
            ConfigurationError: a file cannot be read or does not contain what it should.
        """
        settings = self._settings
        if isinstance(settings, ssl.SSLContext):
            return settings
        stamps = _stamps(settings, storage)
        if self._context is None or stamps != self._stamps:
            try:
                self._context = _make_context(settings, storage, server_side=self._server_side)
            except ConfigurationError:
                if self._context is None:
                    raise
            self._stamps = stamps
        return self._context


def _stamps(settings: TlsSettings, storage: Storage) -> tuple[int, ...]:
    found = []
    for path in (settings.trust, settings.chain, settings.key, settings.revoked):
        if path is not None and not _is_pem_text(path):
            try:
                found.append(storage.modified_ms(path))
            except OSError:
                found.append(-1)
    return tuple(found)


def _is_pem_text(text: str) -> bool:
    return reveal(text).lstrip().startswith(_PEM_MARK.decode())


def _make_context(settings: TlsSettings, storage: Storage, *, server_side: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _limit_versions(context, settings.protocols)
    if settings.ciphers:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError:
            raise ConfigurationError(
                f"ssl_ciphers={settings.ciphers!r}: OpenSSL knows none of these (names as in 'openssl ciphers')"
            ) from None
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
            raise ConfigurationError(
                f"{_named(settings.chain)}: the certificate and its private key cannot be used"
                f" ({_why(error)}). Do they belong together, and is the password of the key right?"
            ) from None
    elif server_side:
        raise ConfigurationError(
            "a listener with TLS needs a certificate: set ssl.keystore.location, or ssl.keystore.certificate.chain and"
            " ssl.keystore.key"
        )
    if settings.revoked is not None:
        try:
            load_revocation_list(context, _read(settings.revoked, storage, "ssl_crlfile"))
        except ssl.SSLError as error:
            raise ConfigurationError(f"{_named(settings.revoked)} is no revocation list: {_why(error)}") from None
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
    content = _read(settings.trust, storage, "ssl_cafile")
    if content.startswith(_DER_SEQUENCE):
        content = _open_pkcs12(content, _password(settings.trust_password), settings.trust).authorities
    try:
        context.load_verify_locations(cadata=content.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"{_named(settings.trust)} contains no certificates: {_why(error)}") from None


def _key_pair(settings: TlsSettings, storage: Storage) -> _KeyPair:
    assert settings.chain is not None
    chain = _read(settings.chain, storage, "ssl_certfile")
    password = _password(settings.password)
    if chain.startswith(_DER_SEQUENCE):
        store_password = _password(settings.store_password)
        return _open_pkcs12(chain, password if store_password is None else store_password, settings.chain)
    key = b"" if settings.key is None else _read(settings.key, storage, "ssl_keyfile")
    if b"PRIVATE KEY-----" not in chain + key:
        raise ConfigurationError(f"{_named(settings.chain)} contains no private key; name the file with ssl_keyfile")
    return _KeyPair(chain, key, password, b"")


def _open_pkcs12(content: bytes, password: str | None, name: str) -> _KeyPair:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ConfigurationError(
            f"{_named(name)} is a PKCS #12 store, which needs the package cryptography:"
            " pip install 'triokafka[keystores]', or convert the store to PEM"
        ) from None
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError:
        raise ConfigurationError(f"{_named(name)} cannot be opened: no PKCS #12 store, or a wrong password") from None
    own = [store.cert] if store.cert is not None else []
    certificates = [entry.certificate.public_bytes(Encoding.PEM) for entry in (*own, *store.additional_certs)]
    key = b""
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return _KeyPair(b"".join(certificates), key, None, b"".join(certificates))


def _read(source: str, storage: Storage, option: str) -> bytes:
    if _is_pem_text(source):
        return reveal(source).replace("\\n", "\n").encode()
    path = reveal(source)
    try:
        content = storage.read_file(path)
    except OSError as error:
        raise ConfigurationError(f"{option}: {path} cannot be read: {error.strerror or error}") from None
    if content.startswith(_JKS_MAGIC):
        raise ConfigurationError(
            f"{option}: {path} is a JKS store, which only Java reads. Convert it: keytool -importkeystore -srckeystore"
            f" {path} -destkeystore store.p12 -deststoretype PKCS12"
        )
    return content


def _password(given: Password) -> str | None:
    value = given() if callable(given) else given
    return None if value is None else reveal(value)


def _named(source: str) -> str:
    return "the PEM text" if _is_pem_text(source) else reveal(source)


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__
