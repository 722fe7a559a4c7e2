"""Test tools: brokers in this process, fault injection, and simulation.

`running_broker` is a real broker on a free loopback port, in memory, in milliseconds, and `running_cluster` several of
them; any client in any language can use them, and the test can have them fail. `triokafka.testing.blocking` has both
for code without Trio. `run_simulation` and `simulation` put brokers and clients into virtual time, with a network that
delays, drops and cuts, and disks that forget. The pytest plugin offers the fixtures ``kafka_broker``, ``kafka_topic``,
``kafka_producer`` and ``kafka_consumer``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from triokafka.testing.blocking import BlockingBroker, BlockingCluster
    from triokafka.testing.broker import RunningBroker
    from triokafka.testing.cluster import RunningCluster
    from triokafka.testing.running import running_broker, running_cluster
    from triokafka.testing.simulated_network import Conditions, Network
    from triokafka.testing.simulated_world import SimulatedWorld
    from triokafka.testing.simulation_run import Host, Simulation, run_simulation, simulation

__all__ = [
    "BlockingBroker",
    "BlockingCluster",
    "Conditions",
    "Host",
    "Network",
    "RunningBroker",
    "RunningCluster",
    "SimulatedWorld",
    "Simulation",
    "run_simulation",
    "running_broker",
    "running_cluster",
    "simulation",
]

# pytest imports this package in every run for its plugin, so nothing else may be imported here.
_HOMES: Final = {
    "BlockingBroker": "blocking",
    "BlockingCluster": "blocking",
    "Conditions": "simulated_network",
    "Host": "simulation_run",
    "Network": "simulated_network",
    "RunningBroker": "broker",
    "RunningCluster": "cluster",
    "SimulatedWorld": "simulated_world",
    "Simulation": "simulation_run",
    "run_simulation": "simulation_run",
    "running_broker": "running",
    "running_cluster": "running",
    "simulation": "simulation_run",
}
_NOT_PUBLIC: Final = {"Final", "TYPE_CHECKING", "annotations", "import_module"}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - _NOT_PUBLIC)
