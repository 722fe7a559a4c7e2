"""Receiving a known number of bytes from a blocking socket."""

from __future__ import annotations

import socket


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Return the next ``size`` bytes. Raises `ConnectionError` when the broker closes the connection before."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data
