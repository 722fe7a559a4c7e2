"""Documents of an identity provider: over HTTP, with retries as in Kafka, or from a file.

The time of all attempts together is bounded: a new one begins only within ``retry_backoff_max_ms`` of the first.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit  # noqa: TID251 - only texts

import trio

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.secret import has_credentials
from triokafka.security.tls import TlsContexts
from triokafka.world import World
from triokafka.world.os_storage import storage_with

logger = logging.getLogger(__name__)

_FINAL: Final = frozenset((400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505))
"""Statuses after which a further attempt is useless."""
_LONGEST_REASON: Final = 300


class OAuthEndpoint(NamedTuple):
    """An address of an identity provider, with its timeouts and retries; ``option`` is the option with the URL, for
    messages."""

    url: str
    option: str
    connect_ms: float = 10_000
    read_ms: float = 10_000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 10_000
    tls: TlsContexts | None = None

    @property
    def path(self) -> str | None:
        """The path of a ``file:`` URL; None for HTTP."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" else None


class EndpointError(Exception):
    """The provider gave no document. The message shows the URL and the provider's error code, and no credentials."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


def check_scheme(url: str, option: str) -> None:
    """Raise `ConfigurationError` unless ``url`` has the scheme http, https or file, and a host or path.

    Messages and log lines name the URL, so it must not hold credentials.
    """
    if has_credentials(url):
        raise ConfigurationError(
            f"{option}: the URL must not hold credentials: the client's id and secret have options of their own"
        )
    try:
        parts = urlsplit(url)
        complete = bool(parts.path if parts.scheme == "file" else parts.hostname)
        _ = parts.port
    except ValueError:
        raise ConfigurationError(f"{option}: {url} is not a URL") from None
    if parts.scheme not in ("http", "https", "file") or not complete:
        raise ConfigurationError(f"{option}: {url} is not a URL that begins with http://, https:// or file:///")


async def document(
    world: World, endpoint: OAuthEndpoint, headers: Mapping[str, str], body: bytes | None = None
) -> bytes:
    """Return the document. Waits for the provider; the event loop runs on. Cancellation leaves nothing behind.

    Raises:
        EndpointError: there is no document, also after the retries.
    """
    path = endpoint.path
    if path is not None:
        try:
            return storage_with(world.storage, path).read_file(path)
        except OSError as error:
            raise EndpointError(f"{path} cannot be read: {error.strerror or error}") from None
    backoff_ms = endpoint.retry_backoff_ms
    last_attempt_at = world.now() + endpoint.retry_backoff_max_ms / 1000
    while True:
        try:
            return await _attempt(world, endpoint, headers, body)
        except EndpointError as error:
            if error.is_final or world.now() + backoff_ms / 1000 > last_attempt_at:
                raise
            logger.info("%s; the next attempt follows in %.0f ms", error, backoff_ms)
        await trio.sleep(backoff_ms / 1000)
        backoff_ms = min(2 * backoff_ms, endpoint.retry_backoff_max_ms)


async def _attempt(world: World, endpoint: OAuthEndpoint, headers: Mapping[str, str], body: bytes | None) -> bytes:
    from triokafka.world.http import fetch  # slow to import

    context: ssl.SSLContext | None = None
    if endpoint.tls is not None and endpoint.url.startswith("https:"):
        context = endpoint.tls.context(world.storage)
    connect, read = endpoint.connect_ms / 1000, endpoint.read_ms / 1000
    try:
        # Resolving the host's name has no time limit of its own.
        with trio.fail_after(2 * connect + read + 1):
            answer = await world.run_in_abandonable_thread(fetch, endpoint.url, headers, body, connect, read, context)
    except trio.TooSlowError:
        raise EndpointError(f"{endpoint.url} did not answer in time") from None
    except OSError as error:
        is_final = isinstance(error, ssl.SSLCertVerificationError)
        raise EndpointError(f"{endpoint.url} cannot be reached: {_of(error)}", is_final=is_final) from None
    if answer.status in (200, 201) and answer.body:
        return answer.body
    reason = f"{endpoint.url} answered {answer.status}{_reason(answer.body)}"
    raise EndpointError(reason, is_final=answer.status in _FINAL or 300 <= answer.status < 400)


def _of(error: OSError) -> str:
    return getattr(error, "verify_message", None) or error.strerror or str(error) or type(error).__name__


def _reason(body: bytes) -> str:
    """Return the error of RFC 6749 section 5.2, or nothing: any other body might contain a credential."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(found, dict):
        return ""
    code = found.get("error", found.get("errorCode"))
    text = found.get("error_description", found.get("errorSummary"))
    told = ": ".join(one for one in (code, text) if isinstance(one, str))
    printable = "".join(letter if letter.isprintable() else " " for letter in told)[:_LONGEST_REASON]
    return f": {printable}" if printable else ""
