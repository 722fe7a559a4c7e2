"""The helper of ``aiokafka.helpers``: a TLS context from files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

    from triokafka.security.store_context import authorities_in, load_own, read_store

    authorities = None if cafile is None else read_store(_name(cafile), "cafile", "password")
    own = None if certfile is None else read_store(_name(certfile), "certfile", "password")
    if authorities is None:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata)
    else:
        found = authorities_in(authorities, _opened(password, authorities))
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, capath=capath, cadata=found)
        if cadata is not None:
            context.load_verify_locations(cadata=cadata)
    if own is not None:
        load_own(context, own, _opened(password, own))
    elif certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context


def _name(path: Any) -> str:
    given = os.fspath(path)
    return given.decode(errors="surrogateescape") if isinstance(given, bytes) else str(given)


def _opened(password: Any, file: StoreFile) -> str | None:
    """Return the password, in the forms that `ssl.SSLContext.load_cert_chain` takes."""
    given = password() if callable(password) else password
    if given is None or isinstance(given, str):
        return given
    if not isinstance(given, bytes | bytearray):
        raise TypeError("password should be a string or a function")
    try:
        return given.decode()
    except UnicodeDecodeError:
        raise file.error("has a password that is not text") from None
