from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from triokafka.broker_stub.api import Handlers
from triokafka.broker_stub.gateway.forwarding import RemoteControllerGateway
from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway
from triokafka.broker_stub.gateway.local import _OPERATIONS, LocalControllerGateway
from triokafka.broker_stub.gateway.switching import switching_gateway
from triokafka.errors import NotControllerError

OPERATIONS = [name for name, member in vars(ControllerGateway).items() if inspect.iscoroutinefunction(member)]


class Recorder:
    """A gateway that answers every operation with its own name and the arguments, or with an error."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.error = error

    def on_behalf_of(self, client: object) -> Recorder:
        return Recorder(f"{self.name} for {client}", self.error)

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        if operation not in OPERATIONS:
            raise AttributeError(operation)

        async def call(*arguments: Any, **options: Any) -> Any:
            if self.error is not None:
                raise self.error
            return self.name, operation, arguments, options

        return call


def gateway(*, active: bool, error: Exception | None = None) -> ControllerGateway:
    local, remote = cast(ControllerGateway, Recorder("local", error)), cast(ControllerGateway, Recorder("remote"))
    return switching_gateway(local, remote, is_active=lambda: active)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("active", "used"), [(True, "local"), (False, "remote")])
async def test_operation_goes_to_the_active_controller(operation: str, active: bool, used: str) -> None:
    call = getattr(gateway(active=active), operation)
    assert await call(1, version=2) == (used, operation, (1,), {"version": 2})


async def test_operation_that_loses_its_controller_is_repeated_at_the_next_one() -> None:
    lost = gateway(active=True, error=NotControllerError("resigned"))
    assert (await lost.broker_heartbeat(cast(Any, "beat")))[0] == "remote"
    with pytest.raises(OSError, match="disk"):
        await gateway(active=True, error=OSError("disk")).broker_heartbeat(cast(Any, "beat"))


async def test_client_of_a_forwarded_request_is_known_at_both_controllers() -> None:
    for active, used in ((True, "local for alice"), (False, "remote for alice")):
        named = gateway(active=active).on_behalf_of(cast(Any, "alice"))
        assert (await named.broker_heartbeat(cast(Any, "beat")))[0] == used


def test_unknown_operation_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="create_topic"):
        _ = getattr(gateway(active=True), "create_topic")  # noqa: B009


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", [LocalControllerGateway, RemoteControllerGateway])
def test_both_gateways_have_every_operation_with_its_parameters(operation: str, kind: type) -> None:
    wanted = inspect.signature(getattr(ControllerGateway, operation)).parameters
    assert inspect.signature(getattr(kind, operation)).parameters.keys() == wanted.keys()


def test_local_gateway_executes_every_request_that_handlers_send() -> None:
    sent = {
        handler.request_type.__name__
        for handler in Handlers().values()
        if "gateway_without_slot().send(" in inspect.getsource(handler.function)
    }
    assert sent == _OPERATIONS.keys()
