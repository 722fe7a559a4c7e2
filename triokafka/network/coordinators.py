"""The coordinators of groups and transactional ids: looked up once, and cached until a caller reports a move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from triokafka.errors import CoordinatorNotAvailableError, KafkaError, for_code
from triokafka.network.cluster import can_be_reached
from triokafka.network.known_brokers import KnownBrokers
from triokafka.protocol.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.structs import Node

_FIRST_WITH_KEY_TYPE: Final = 1
_FIRST_WITH_SEVERAL_KEYS: Final = 4
_MOST_KNOWN: Final = 10_000
_MOST_AT_ONCE: Final = 1_000

Ask = Callable[[Callable[[int], FindCoordinatorRequest], int | None, float | None], Awaitable[FindCoordinatorResponse]]
"""Sends a request, built by a function of its version, to any broker. Also takes the lowest version and a timeout in
milliseconds."""


class Coordinators:
    """A cache of coordinators. ``request_metadata_update`` is called when a coordinator is unavailable."""

    def __init__(self, ask: Ask, brokers: KnownBrokers, request_metadata_update: Callable[[], None]) -> None:
        self._ask = ask
        self._brokers = brokers
        self._request_metadata_update = request_metadata_update
        self._known: dict[tuple[str, int], Node] = {}

    async def find(self, key: str, key_type: int, timeout_ms: float | None) -> Node:
        """See `NetworkClient.find_coordinator`."""
        node = self._known.get((key, key_type))
        if node is not None:
            return node
        found = (await self._look_up([key], key_type, timeout_ms))[key]
        if isinstance(found, KafkaError):
            raise found.fresh_copy()
        return found

    async def find_all(
        self, keys: Iterable[str], key_type: int, timeout_ms: float | None
    ) -> dict[str, Node | KafkaError]:
        """See `NetworkClient.find_coordinators`."""
        wanted = dict.fromkeys(keys)
        found: dict[str, Node | KafkaError] = {
            key: node for key in wanted if (node := self._known.get((key, key_type))) is not None
        }
        while missing := [key for key in wanted if key not in found][:_MOST_AT_ONCE]:
            found |= await self._look_up(missing, key_type, timeout_ms)
        return found

    async def _look_up(self, keys: list[str], key_type: int, timeout_ms: float | None) -> dict[str, Node | KafkaError]:
        """Look up several coordinators: all of them, or with brokers before 3.0 only the first."""
        asked = keys[:1]

        def build(version: int) -> FindCoordinatorRequest:
            nonlocal asked
            if version >= _FIRST_WITH_SEVERAL_KEYS:
                asked = keys
                return FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
            return FindCoordinatorRequest(key=keys[0], key_type=key_type)

        response = await self._ask(build, _FIRST_WITH_KEY_TYPE if key_type else None, timeout_ms)
        answers: Mapping[str, FindCoordinatorResponse | Coordinator] = {c.key: c for c in response.coordinators}
        if not answers:
            answers = {keys[0]: response}
        elif len(keys) == 1:
            answers = {keys[0]: response.coordinators[0]}
        return {key: self._take(key, key_type, answers.get(key)) for key in asked}

    def _take(self, key: str, key_type: int, found: FindCoordinatorResponse | Coordinator | None) -> Node | KafkaError:
        if found is None:
            return CoordinatorNotAvailableError(f"the broker's response has no coordinator of {key!r}")
        if found.error_code:
            error = for_code(found.error_code)(found.error_message or f"coordinator of {key!r}")
            if error.retriable:
                self._request_metadata_update()  # the broker of the coordinator may be gone
            return error
        node = Node(found.node_id, found.host, found.port)
        if not can_be_reached(node):
            return CoordinatorNotAvailableError(f"the broker named an invalid coordinator for {key!r}: {node}")
        self._brokers.add(node)
        if len(self._known) >= _MOST_KNOWN:
            self._known.pop(next(iter(self._known)))  # a caller with this many keys uses each key once
        self._known[key, key_type] = node
        return node

    def assume(self, key: str, key_type: int, node: Node) -> None:
        """See `NetworkClient.assume_coordinator`."""
        self._known[key, key_type] = node

    def forget(self, key: str, key_type: int) -> None:
        """Look the coordinator up again next time."""
        self._known.pop((key, key_type), None)
