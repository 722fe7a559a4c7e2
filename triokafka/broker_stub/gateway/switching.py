"""The gateway of a node with both roles: to its own controller while that one is active, else to the active one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway, ForwardedClient
from triokafka.errors import NotControllerError


def switching_gateway(
    local: ControllerGateway, remote: ControllerGateway, *, is_active: Callable[[], bool]
) -> ControllerGateway:
    """Return a gateway that uses the node's own controller while that one is active.

    An operation that the own controller loses with its leadership is repeated at the next active controller, as after a
    lost connection: the first attempt may have been executed.

    Args:
        local: the node's own controller.
        remote: the active controller on another node.
        is_active: whether the node's own controller is active.
    """
    return cast(ControllerGateway, _SwitchingGateway(local, remote, is_active))


class _SwitchingGateway:
    def __init__(self, local: ControllerGateway, remote: ControllerGateway, is_active: Callable[[], bool]) -> None:
        self._local = local
        self._remote = remote
        self._is_active = is_active

    def on_behalf_of(self, client: ForwardedClient) -> ControllerGateway:
        return switching_gateway(
            self._local.on_behalf_of(client), self._remote.on_behalf_of(client), is_active=self._is_active
        )

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        local, remote = getattr(self._local, operation), getattr(self._remote, operation)

        async def call(*arguments: Any, **options: Any) -> Any:
            if self._is_active():
                try:
                    return await local(*arguments, **options)
                except NotControllerError:
                    pass
            return await remote(*arguments, **options)

        return call
