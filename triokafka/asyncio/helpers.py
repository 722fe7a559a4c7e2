"""The helper of ``aiokafka.helpers``: a TLS context from files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

    from triokafka.security.key_stores import StoreFile

__all__ = ["create_ssl_context"]


def create_ssl_context(
    *,
    cafile: Any = None,
    capath: Any = None,
    cadata: Any = None,
    certfile: Any = None,
    keyfile: Any = None,
    password: Any = None,
) -> Any:
    """Return an `ssl.SSLContext` for clients, which checks the broker's certificate and host name.

    ``cafile`` and ``certfile`` may also be stores of Java, PKCS #12 or JKS; the content decides. PKCS #12 needs the
    package ``cryptography``.

    Args:
        cafile, capath, cadata: certificates of authorities, as `ssl.SSLContext.load_verify_locations` takes them; the
            system's by default.
        certfile, keyfile, password: the client's certificate and private key, and the password of the key. It is also
            the password of both stores; a JKS store with authorities needs none, and then is not checked.

    Raises:
        ConfigurationError: a store cannot be used; the message says why.
        OSError, ssl.SSLError: another file cannot be used.
    """
    import ssl

    authorities = None if cafile is None else _store(cafile, "cafile")
    own = None if certfile is None else _store(certfile, "certfile")
    if authorities is None:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata)
    else:
        context = _trusting(authorities, capath, cadata, _opened(password, authorities))
    if own is not None:
        _load_own(context, own, _opened(password, own))
    elif certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context


def _store(path: Any, option: str) -> StoreFile | None:
    """Return the file if it is a store of Java; None for anything else, which is OpenSSL's."""
    from triokafka.security.key_stores import StoreFile, is_store
    from triokafka.world.os_storage import OsStorage

    given = os.fspath(path)
    name = given.decode(errors="surrogateescape") if isinstance(given, bytes) else given
    try:
        content = OsStorage().read_file(name)
    except OSError:
        return None  # OpenSSL raises the same error
    return StoreFile(content, name, option, "password") if is_store(content) else None


def _opened(password: Any, file: StoreFile) -> str | None:
    """Return the password, in the forms that `ssl.SSLContext.load_cert_chain` takes."""
    given = password() if callable(password) else password
    if given is None or isinstance(given, str):
        return given
    try:
        return bytes(given).decode()
    except (TypeError, UnicodeDecodeError):
        raise file.error("has a password that is no text") from None


def _trusting(file: StoreFile, capath: Any, cadata: Any, password: str | None) -> ssl.SSLContext:
    import ssl

    from triokafka.security.key_stores import trusted_certificates

    found = trusted_certificates(file, password).decode("ascii")
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, capath=capath, cadata=found)
    if cadata is not None:
        context.load_verify_locations(cadata=cadata)
    return context


def _load_own(context: ssl.SSLContext, file: StoreFile, password: str | None) -> None:
    from triokafka.security.key_stores import own_certificate
    from triokafka.world.pem_memory import load_own_certificate

    pair = own_certificate(file, store_password=password, key_password=password, key_option="password")
    assert pair is not None
    load_own_certificate(context, pair.chain, pair.key, pair.password)
