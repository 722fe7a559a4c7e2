"""Stores of Java in an `ssl.SSLContext` that the caller created, for `triokafka.asyncio.helpers`."""

from __future__ import annotations

import ssl

from triokafka.security.key_stores import StoreFile, is_store, own_certificate, trusted_certificates
from triokafka.world.os_storage import OsStorage
from triokafka.world.pem_memory import load_own_certificate


def read_store(path: str, option: str, password_option: str) -> StoreFile | None:
    """Return the file if it is a store, PKCS #12 or JKS; None for anything else, also if it cannot be read."""
    try:
        content = OsStorage().read_file(path)
    except OSError:
        return None
    return StoreFile(content, path, option, password_option) if is_store(content) else None


def authorities_in(file: StoreFile, password: str | None) -> str:
    """Return the certificates of a store in PEM. Raises `ConfigurationError`."""
    return trusted_certificates(file, password).decode("ascii")


def load_own(context: ssl.SSLContext, file: StoreFile, password: str | None) -> None:
    """Let the context present the store's first key with its chain. Raises `ConfigurationError`."""
    pair = own_certificate(file, store_password=password, key_password=password, key_option=file.password_option)
    assert pair is not None
    load_own_certificate(context, pair.chain, pair.key, pair.password)
