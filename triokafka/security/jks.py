"""Java's key stores of the type JKS: certificates, and private keys under a password. Reads only; no I/O.

The format has a header, entries, and a SHA-1 digest over the store's password and all bytes before it. A private key
is XORed with a chain of SHA-1 digests of the key's password, and has a digest of its own. The libraries that read it
are without releases for years, or need four more; the format is frozen.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
import textwrap
from typing import Final

from triokafka.named_tuple import NamedTuple

MAGIC: Final = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = 20
_PROTECTION: Final = bytes.fromhex("060a2b060104012a02110101")
"""The DER of the object identifier of Sun's protection of keys."""
_KEY, _CERTIFICATE = 1, 2
_MOST_ENTRIES: Final = 10_000


class DamagedStoreError(Exception):
    """The bytes are not a complete JKS store."""


class WrongPasswordError(Exception):
    """The store's password, or with ``of_key`` that of a key, is wrong."""

    def __init__(self, *, of_key: bool = False) -> None:
        super().__init__("wrong password of the key" if of_key else "wrong password of the store")


class KeyEntry(NamedTuple):
    """A private key, still protected, and its chain of certificates as DER, its own first."""

    alias: str
    protected: bytes
    chain: tuple[bytes, ...]

    def private_key_pem(self, password: str) -> bytes:
        """Return the private key in PEM (PKCS #8). Raises `WrongPasswordError` and `DamagedStoreError`."""
        salted = _salted_content(self.protected)
        salt, content, check = salted[:20], salted[20:-_DIGEST_BYTES], salted[-_DIGEST_BYTES:]
        secret = password.encode("utf-16-be")
        stream, block = bytearray(), salt
        while len(stream) < len(content):
            block = hashlib.sha1(secret + block).digest()
            stream += block
        key = bytes(a ^ b for a, b in zip(content, stream, strict=False))
        if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
            raise WrongPasswordError(of_key=True)
        return _pem("PRIVATE KEY", key)

    def chain_pem(self) -> bytes:
        """Return the chain in PEM."""
        return b"".join(_pem("CERTIFICATE", one) for one in self.chain)


class KeyStore(NamedTuple):
    """The entries of a store, in the order of the file."""

    keys: tuple[KeyEntry, ...]
    certificates: tuple[bytes, ...]

    def certificates_pem(self) -> bytes:
        """Return the trusted certificates in PEM."""
        return b"".join(_pem("CERTIFICATE", one) for one in self.certificates)


def read_jks(content: bytes, password: str | None) -> KeyStore:
    """Return the entries of a store. Without a password its digest is not checked, as in Java.

    Raises:
        DamagedStoreError: the store is truncated or malformed.
        WrongPasswordError: the digest differs: the password is wrong, or the store was changed.
    """
    reader = _Reader(content)
    version, count = reader.number("II")[1], reader.number("I")[0]
    if version not in (1, 2) or count > _MOST_ENTRIES:
        raise DamagedStoreError(f"version {version} with {count} entries is not supported")
    keys, certificates = [], []
    for _ in range(count):
        kind, alias, _created = reader.number("I")[0], reader.text(), reader.number("Q")
        if kind == _KEY:
            protected = reader.block()
            chain = tuple(reader.certificate(version) for _ in range(reader.small_number()))
            keys.append(KeyEntry(alias, protected, chain))
        elif kind == _CERTIFICATE:
            certificates.append(reader.certificate(version))
        else:
            raise DamagedStoreError(f"an entry of the unknown kind {kind}")
    body, digest = content[: reader.at], content[reader.at :]
    if len(digest) != _DIGEST_BYTES:
        raise DamagedStoreError(f"{len(digest)} bytes after the last entry, instead of a digest of {_DIGEST_BYTES}")
    if password is not None:
        expected = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise WrongPasswordError
    return KeyStore(tuple(keys), tuple(certificates))


class _Reader:
    """Reads numbers and blocks in turn. Raises `DamagedStoreError` at the end of the bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def take(self, size: int) -> bytes:
        found = self._content[self.at : self.at + size]
        if len(found) != size:
            raise DamagedStoreError("the store is truncated")
        self.at += size
        return found

    def number(self, form: str) -> tuple[int, ...]:
        form = f">{form}"
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def small_number(self) -> int:
        found = self.number("I")[0]
        if found > _MOST_ENTRIES:
            raise DamagedStoreError(f"a chain of {found} certificates")
        return found

    def block(self) -> bytes:
        return self.take(self.number("I")[0])

    def text(self) -> str:
        return self.take(self.number("H")[0]).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        kind = self.text() if version == 2 else "X.509"
        if kind != "X.509":
            raise DamagedStoreError("a certificate of another kind than X.509")
        return self.block()


def _salted_content(protected: bytes) -> bytes:
    """Return the octet string of an EncryptedPrivateKeyInfo (PKCS #8) with Sun's protection."""
    try:
        kind, inside, _ = _der(protected)
        algorithm_kind, algorithm, rest = _der(inside)
        content_kind, content, _ = _der(rest)
    except IndexError:
        raise DamagedStoreError("a private key is truncated") from None
    if (kind, algorithm_kind, content_kind) != (0x30, 0x30, 0x04) or not algorithm.startswith(_PROTECTION):
        raise DamagedStoreError("a private key has an unknown protection")
    if len(content) < 20 + _DIGEST_BYTES:
        raise DamagedStoreError("a private key is truncated")
    return content


def _der(content: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the content of the first element, and what follows it."""
    size, at = content[1], 2
    if size & 0x80:
        at = 2 + (size & 0x7F)
        size = int.from_bytes(content[2:at], "big")
    if at + size > len(content):
        raise IndexError
    return content[0], content[at : at + size], content[at + size :]


def _pem(label: str, der: bytes) -> bytes:
    lines = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n".encode()
