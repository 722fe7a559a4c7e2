"""HTTP requests to identity providers. Everything here blocks: run it in a worker thread.

Redirects are not followed: the address that the user allowed is the only one that is asked. ``HTTP_PROXY``,
``HTTPS_PROXY`` and ``NO_PROXY`` of the environment are respected.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from triokafka.named_tuple import NamedTuple

_MOST_BYTES: Final = 1 << 20
"""The largest answer that is read: keys and tokens take some kilobytes."""
_PIECE: Final = 64 << 10


class HttpAnswer(NamedTuple):
    """The status and the body of an answer. The body may hold a token, so it does not appear in the ``repr``."""

    status: int
    body: bytes

    def __repr__(self) -> str:
        return f"HttpAnswer({self.status}, {len(self.body)} bytes)"


def fetch(
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    connect_seconds: float,
    read_seconds: float,
    context: ssl.SSLContext | None,
) -> HttpAnswer:
    """Send a GET, or with a body a POST, and return the answer, whatever its status.

    Args:
        connect_seconds: how long connecting to one address may take, the TLS handshake included.
        read_seconds: how long the answer may take.
        context: TLS for ``https``; None trusts the authorities of the system.

    Raises:
        OSError: the server cannot be reached, does not answer in time, or does not speak HTTP.
    """
    try:
        connection, target = _connection(url, connect_seconds, context)
        try:
            connection.connect()
            assert connection.sock is not None
            connection.sock.settimeout(read_seconds)
            connection.request("GET" if body is None else "POST", target, body, dict(headers))
            return _read(connection, time.monotonic() + read_seconds)
        finally:
            connection.close()
    except http.client.HTTPException as error:
        raise OSError(f"not a valid HTTP answer: {type(error).__name__}") from error


def _connection(url: str, timeout: float, context: ssl.SSLContext | None) -> tuple[http.client.HTTPConnection, str]:
    parts = urlsplit(url)
    host, port, secure = parts.hostname or "", parts.port, parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    context = context or (ssl.create_default_context() if secure else None)
    proxy = None if proxy_bypass(host) else getproxies().get(parts.scheme)
    if proxy is None:
        if secure:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context), target
        return http.client.HTTPConnection(host, port, timeout=timeout), target
    through = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if not secure:
        return http.client.HTTPConnection(through.hostname or "", through.port, timeout=timeout), url
    tunnel = http.client.HTTPSConnection(through.hostname or "", through.port, timeout=timeout, context=context)
    tunnel.set_tunnel(host, port)
    return tunnel, target


def _read(connection: http.client.HTTPConnection, until: float) -> HttpAnswer:
    response = connection.getresponse()
    found = bytearray()
    while piece := response.read1(_PIECE):
        found += piece
        if len(found) > _MOST_BYTES:
            raise OSError(f"the answer has more than {_MOST_BYTES} bytes")
        if time.monotonic() > until:
            raise TimeoutError("the answer took too long")
    return HttpAnswer(response.status, bytes(found))
