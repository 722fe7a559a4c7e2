"""Certificates and keys out of the files that TLS options name: PEM, PKCS #12, and Java's JKS. The content decides.

Every problem is a `ConfigurationError` that names the option and the file, and whether the password is missing or
wrong, or the file is truncated or of another type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.jks import JCEKS_MAGIC, MAGIC, DamagedStoreError, KeyStore, WrongPasswordError, read_jks
from triokafka.security.secret import reveal

PEM_MARK: Final = b"-----BEGIN "
_DER_SEQUENCE: Final = b"\x30"

Password = str | Callable[[], str] | None


class KeyPair(NamedTuple):
    """A chain of certificates and its private key in PEM, and the password of the key if it is encrypted."""

    chain: bytes
    key: bytes
    password: str | None


class StoreFile(NamedTuple):
    """The content of a file, and how messages name it.

    ``option`` named the file, and ``password_option`` holds its password.
    """

    content: bytes
    name: str
    option: str
    password_option: str

    def error(self, problem: str) -> ConfigurationError:
        """Return the error for a problem with this file."""
        return ConfigurationError(f"{self.option}: {self.name} {problem}")

    @property
    def is_pem(self) -> bool:
        """Whether the content is text in PEM."""
        return PEM_MARK in self.content


def is_store(content: bytes) -> bool:
    """Whether the content is a store, PKCS #12 or JKS, and no PEM."""
    return PEM_MARK not in content and content.startswith((MAGIC, _DER_SEQUENCE))


def password_of(given: Password, option: str) -> str | None:
    """Return a password, from a function if it is one. Raises `ConfigurationError`."""
    try:
        value = given() if callable(given) else given
    except Exception as error:
        raise ConfigurationError(f"{option}: the function for it failed: {type(error).__name__}") from None
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{option}: the function for it returned no string")
    return None if value is None else reveal(value)


def trusted_certificates(file: StoreFile, password: str | None) -> bytes:
    """Return the certificates of a trust store in PEM. Raises `ConfigurationError`."""
    content = file.content
    if file.is_pem:
        return content
    if content.startswith(MAGIC):
        store = _jks(file, password)
        found = store.certificates_pem() or b"".join(entry.chain_pem() for entry in store.keys)
    elif content.startswith(_DER_SEQUENCE):
        found = _pkcs12(file, password).chain
    else:
        raise _another_type(file)
    if not found:
        raise file.error("contains no certificates")
    return found


def own_certificate(
    file: StoreFile, *, store_password: str | None, key_password: str | None, key_option: str
) -> KeyPair | None:
    """Return the first key with its chain; None for a PEM file. Raises `ConfigurationError`."""
    content = file.content
    if file.is_pem:
        return None
    if content.startswith(_DER_SEQUENCE):
        pair = _pkcs12(file, store_password)
        if not pair.key:
            raise file.error("contains no private key")
        return pair
    if not content.startswith(MAGIC):
        raise _another_type(file)
    entries = _jks(file, store_password).keys
    if not entries:
        raise file.error("contains no private key")
    password = store_password if key_password is None else key_password
    if password is None:
        raise file.error(f"needs the password of its key: set {key_option}")
    try:
        return KeyPair(entries[0].chain_pem(), entries[0].private_key_pem(password), None)
    except WrongPasswordError:
        raise file.error(f"cannot be opened: the password of its key ({key_option}) is wrong") from None
    except DamagedStoreError as error:
        raise file.error(f"is damaged: {error}") from None


def _jks(file: StoreFile, password: str | None) -> KeyStore:
    try:
        return read_jks(file.content, password)
    except WrongPasswordError:
        raise file.error(
            f"cannot be opened: the password of the store ({file.password_option}) is wrong, or the store was changed"
        ) from None
    except DamagedStoreError as error:
        raise file.error(f"is a damaged JKS store: {error}") from None


def _pkcs12(file: StoreFile, password: str | None) -> KeyPair:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise file.error(
            "is a PKCS #12 store, which needs the package cryptography: pip install 'triokafka[keystores]', or convert"
            " the store to PEM"
        ) from None
    if _is_truncated(file.content):
        raise file.error("is a truncated PKCS #12 store")
    try:
        store = pkcs12.load_pkcs12(file.content, None if password is None else password.encode())
    except ValueError as error:
        if "password" not in str(error).lower():
            raise file.error("is no PKCS #12 store, or a damaged one") from None
        if password is None:
            raise file.error(f"needs the password of the store: set {file.password_option}") from None
        raise file.error(
            f"cannot be opened: the password of the store ({file.password_option}) is wrong, or the store is damaged"
        ) from None
    own = [store.cert] if store.cert is not None else []
    certificates = [entry.certificate.public_bytes(Encoding.PEM) for entry in (*own, *store.additional_certs)]
    key = b""
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(b"".join(certificates), key, None)


def _is_truncated(content: bytes) -> bool:
    """Whether a DER sequence claims more bytes than there are."""
    if len(content) < 2:
        return True
    size, at = content[1], 2
    if size == 0x80:
        return False  # of indefinite length
    if size & 0x80:
        at = 2 + (size & 0x7F)
        size = int.from_bytes(content[2:at], "big")
    return at + size > len(content)


def _another_type(file: StoreFile) -> ConfigurationError:
    if file.content.startswith(JCEKS_MAGIC):
        return file.error(
            f"is a JCEKS store, which only Java reads. Convert it: keytool -importkeystore -srckeystore {file.name}"
            " -srcstoretype JCEKS -destkeystore store.p12 -deststoretype PKCS12"
        )
    if not file.content:
        return file.error("is empty")
    return file.error("is neither PEM, nor a PKCS #12 or JKS store")
