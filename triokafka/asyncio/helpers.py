"""The helper of ``aiokafka.helpers``: a TLS context from files."""

from __future__ import annotations

from typing import Any

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

    Args:
        cafile, capath, cadata: certificates of authorities, as `ssl.SSLContext.load_verify_locations` takes them; the
            system's by default.
        certfile, keyfile, password: the client's certificate and private key, and the password of the key.
    """
    import ssl

    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
