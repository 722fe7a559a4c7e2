"""Free ports for the listeners of nodes, which must be known before the nodes start."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from contextlib import ExitStack
from typing import Final

# Below the ports that systems give to connections: while a node is down, a client that tries its port again would
# sooner or later be given that port for its own end, and the node could not come back.
_PORTS: Final = range(10_000, 32_768)
_ATTEMPTS: Final = 1_000


def free_ports(count: int, host: str = "127.0.0.1", *, without: Collection[int] = ()) -> list[int]:
    """Return ports of ``host`` on which nothing listens now, other than those in ``without``.

    Raises:
        OSError: the host is unknown, or has no free ports.
    """
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    found: dict[int, None] = {}
    with ExitStack() as held:
        for _ in range(_ATTEMPTS):
            if len(found) == count:
                return list(found)
            port = random.choice(_PORTS)
            if port in found or port in without:
                continue
            probe = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                probe.bind((host, port))
            except OSError:
                continue
            found[port] = None
    raise OSError(f"no {count} ports of {host} are free")


def is_free(host: str, port: int) -> bool:
    """Whether a node could listen on a port of ``host`` now."""
    try:
        with socket.socket(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError:
        return False
    return True
