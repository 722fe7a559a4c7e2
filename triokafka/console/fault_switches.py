"""The fault switches of a test cluster, as the page uses them: the calls and their arguments.

A call is one path of the control endpoint of `triokafka broker --control`, or of the processes of `triokafka cluster`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from triokafka.errors import InvalidRequestError, KafkaConnectionError

CALLS: Final = frozenset(
    {
        "freeze", "thaw", "stop", "start", "restart", "kill", "partition-network", "heal", "cut-connections",
        "fill-disk", "free-disk", "reset", "faults",
    }
)  # fmt: skip
"""Names of all calls. ``faults`` arms a fault."""


class FaultSwitches(Protocol):
    """Something that breaks and mends the brokers of a test cluster."""

    async def state(self) -> dict[str, Any]:
        """Return ``{"calls": […], "brokers": [{"broker", "running", …}], "faults": […]}``. Raises `KafkaError`."""
        ...

    async def call(self, name: str, values: Mapping[str, Any]) -> Any:
        """Do one of `CALLS`, and return its answer. Raises `KafkaError`."""
        ...


class FaultEndpoint(Protocol):
    """A control endpoint: `HttpEndpoint`, or that of the same process."""

    @property
    def address(self) -> str:
        """The address of the control endpoint, for errors."""
        ...

    async def request(self, method: str, path: str, document: Any = None) -> tuple[int, str]:
        """Return status and body of an answer. Raises `KafkaError`."""
        ...


class ControlledFaults:
    """Fault switches over a control endpoint."""

    def __init__(self, endpoint: FaultEndpoint) -> None:
        self._endpoint = endpoint

    async def state(self) -> dict[str, Any]:
        """Return brokers and armed faults. Raises `KafkaError`."""
        found = await self._ask("GET", "/brokers")
        return {"calls": sorted(CALLS), "brokers": found["brokers"], "faults": await self._ask("GET", "/faults")}

    async def call(self, name: str, values: Mapping[str, Any]) -> Any:
        """Do one of `CALLS`. ``reset`` also disarms the faults. Raises `KafkaError`."""
        if name == "reset":
            await self._ask("DELETE", "/faults")
        return await self._ask("POST", f"/{name}", dict(values))

    async def _ask(self, method: str, path: str, document: Any = None) -> Any:
        status, text = await self._endpoint.request(method, path, document)
        try:
            answer = json.loads(text)
        except ValueError:
            raise KafkaConnectionError(f"{self._endpoint.address} is not a control endpoint of triokafka") from None
        if status != 200:
            raise InvalidRequestError(answer.get("error", text) if isinstance(answer, dict) else text)
        return answer
