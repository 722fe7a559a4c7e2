"""Certificates and private keys from memory into a TLS context, whose interface of the standard library wants files.

On Linux the bytes go through an anonymous file in memory. Elsewhere they go through a temporary file that only this
user can read, and that is deleted immediately.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        with suppress(OSError):
            os.remove(path)


def load_own_certificate(context: ssl.SSLContext, chain: bytes, key: bytes, password: str | None) -> None:
    """Let ``context`` present this certificate chain, its own certificate first, with this private key; both PEM.

    Raises:
        ssl.SSLError: the bytes are not a certificate and key, do not belong together, or the password is wrong.
    """
    # An empty password makes OpenSSL fail instead of asking at the terminal.
    with _as_file(chain.rstrip() + b"\n" + key) as path:
        context.load_cert_chain(path, password=password or "")


def load_revocation_list(context: ssl.SSLContext, pem: bytes) -> None:
    """Check the peer's own certificate against this certificate revocation list. Raises `ssl.SSLError`."""
    with _as_file(pem) as path:
        context.load_verify_locations(path)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
