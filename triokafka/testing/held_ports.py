"""Ports of a node that nothing listens on while the node is stopped."""

from __future__ import annotations

import socket


class HeldPorts:
    """Holds ports with sockets that are bound and do not listen, so that no other program gets the ports.

    Connecting to a held port is refused. The system does not choose a held port for the local end of a connection
    either.
    """

    def __init__(self) -> None:
        self._placeholders: dict[tuple[str, int], socket.socket] = {}

    def hold(self, host: str, port: int) -> tuple[str, int] | None:
        """Hold a port of ``host``, a free one if it is 0; return the address, or None if the port is in use."""
        if placeholder := self._placeholders.get((host, port)):
            return _address(placeholder)
        placeholder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            placeholder.bind((host, port))
        except OSError:
            placeholder.close()
            return None
        address = _address(placeholder)
        self._placeholders[host, address[1]] = placeholder
        return address

    def release(self, host: str, port: int) -> None:
        """Let a port go, if it is held."""
        if placeholder := self._placeholders.pop((host, port), None):
            placeholder.close()

    def release_all(self) -> None:
        """Let all ports go."""
        for address in list(self._placeholders):
            self.release(*address)


def _address(placeholder: socket.socket) -> tuple[str, int]:
    host, port = placeholder.getsockname()[:2]
    return host, port
