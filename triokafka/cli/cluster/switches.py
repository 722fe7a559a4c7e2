"""The fault switches of ``triokafka cluster --console``: signals to the processes of its nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from triokafka.cli.cluster.processes import ChildProcess
from triokafka.errors import InvalidRequestError


class ProcessSwitches:
    """Freezes, stops, kills and starts nodes. ``start`` starts a node whose process has ended, and waits for it."""

    def __init__(self, nodes: Sequence[ChildProcess], start: Callable[[ChildProcess], Awaitable[None]]) -> None:
        self._nodes = {node.node_id: node for node in nodes}
        self._start = start

    async def state(self) -> dict[str, Any]:
        """Return the calls and the nodes."""
        return {
            "calls": ["freeze", "kill", "restart", "start", "stop", "thaw"],
            "brokers": [
                {
                    "broker": node.node_id,
                    "bootstrap_servers": node.layout.address,
                    "running": node.is_running,
                    "frozen": node.is_frozen,
                }
                for node in self._nodes.values()
            ],
            "faults": [],
        }

    async def call(self, name: str, values: Mapping[str, Any]) -> Any:
        """Do one call to a ``broker``. Raises `KafkaError`."""
        node = self._nodes.get(values.get("broker", -1))
        if node is None:
            raise InvalidRequestError(f"broker must be one of {sorted(self._nodes)}")
        match name:
            case "freeze":
                node.freeze()
            case "thaw":
                node.thaw()
            case "kill":
                node.kill()
            case "stop" | "restart":
                node.stop()
                await node.wait_ended()
        if name in ("start", "restart") and not node.is_running:
            await self._start(node)
        return {}
