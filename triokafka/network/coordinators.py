"""Which broker coordinates a group or a transactional id: asked once, kept until somebody says that it moved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from triokafka.errors import CoordinatorNotAvailableError, for_code
from triokafka.network.directory import BrokerDirectory
from triokafka.network.snapshot import can_be_reached
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.structs import Node

_FIRST_WITH_KEY_TYPE: Final = 1
_FIRST_WITH_SEVERAL_KEYS: Final = 4
_MOST_KNOWN: Final = 10_000

Ask = Callable[[Callable[[int], FindCoordinatorRequest], int | None, float | None], Awaitable[FindCoordinatorResponse]]
"""Sends a request, given as a function of its version, to any broker: lowest version and timeout in milliseconds."""


class Coordinators:
    """The coordinators known so far. ``request_metadata_update`` is called when there is none for the moment."""

    def __init__(self, ask: Ask, directory: BrokerDirectory, request_metadata_update: Callable[[], None]) -> None:
        self._ask = ask
        self._directory = directory
        self._request_metadata_update = request_metadata_update
        self._known: dict[tuple[str, int], Node] = {}

    async def find(self, key: str, key_type: int, timeout_ms: float | None) -> Node:
        """See `NetworkClient.find_coordinator`."""
        node = self._known.get((key, key_type))
        if node is not None:
            return node

        def build(version: int) -> FindCoordinatorRequest:
            if version >= _FIRST_WITH_SEVERAL_KEYS:
                return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            return FindCoordinatorRequest(key=key, key_type=key_type)

        response = await self._ask(build, _FIRST_WITH_KEY_TYPE if key_type else None, timeout_ms)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            error = for_code(found.error_code)(found.error_message or f"coordinator of {key!r}")
            if error.retriable:
                self._request_metadata_update()  # its broker may be gone (`client/META-28`)
            raise error
        node = Node(found.node_id, found.host, found.port)
        if not can_be_reached(node):
            raise CoordinatorNotAvailableError(f"the broker named as coordinator of {key!r} cannot be one: {node}")
        self._directory.add(node)
        if len(self._known) >= _MOST_KNOWN:
            self._known.pop(next(iter(self._known)))  # who asks for that many, asks for each once
        self._known[key, key_type] = node
        return node

    def forget(self, key: str, key_type: int) -> None:
        """Look the coordinator up again next time."""
        self._known.pop((key, key_type), None)
