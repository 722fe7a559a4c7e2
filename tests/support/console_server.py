"""A console in this process, served to a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from triokafka.broker_stub.control.endpoint import ControlEndpoint
from triokafka.cli.broker_console import SameProcessControl, source_of
from triokafka.console import ConsoleOptions
from triokafka.console.fault_switches import ControlledFaults
from triokafka.console.limits import ConsoleLimits
from triokafka.console.serving import ConsoleAddress, serve_console
from triokafka.testing import RunningBroker, RunningCluster
from triokafka.testing.control import brokers_of, control_actions
from triokafka.world.system import RealWorld


def samples_of(broker: RunningBroker) -> Any:
    """Return a function that returns a broker's metrics, none while it is down."""
    return lambda: broker.broker.metrics() if broker.is_running else ()


@asynccontextmanager
async def served_console(
    client: Mapping[str, Any],
    *,
    target: RunningBroker | RunningCluster | None = None,
    limits: ConsoleLimits | None = None,
    **options: Any,
) -> AsyncIterator[str]:
    """Serve a console on loopback for the length of the block, and return its URL. ``target`` gets fault switches."""
    world = RealWorld()
    hosts: set[str] = set()
    if target is not None:
        control = ControlEndpoint(target.faults, world, actions=control_actions(target))
        options["faults"] = ControlledFaults(SameProcessControl(control))
        options["metrics"] = {f"broker {one.node_id}": source_of(samples_of(one), world) for one in brokers_of(target)}
    made = ConsoleOptions(client, hosts, limits=limits or ConsoleLimits(), **options)
    async with trio.open_nursery() as nursery:
        url = await nursery.start(serve_console, ConsoleAddress("127.0.0.1", 0), made, hosts, world, trio.sleep_forever)
        yield url
        nursery.cancel_scope.cancel()
