"""What tests need: brokers in this process, and the simulated world.

`running_broker` is a real broker on a free loopback port, in memory, in milliseconds; any client in any language can
use it. `run_simulation` and `simulation` put brokers and clients into virtual time, with a network that delays, drops
and cuts, and disks that forget. The pytest plugin offers a broker as the fixture ``triokafka_broker``.
"""

from __future__ import annotations

from triokafka.testing.brokers import running_broker
from triokafka.testing.network import Conditions, Network
from triokafka.testing.simulation import Host, Simulation, run_simulation, simulation
from triokafka.testing.world import SimulatedWorld

__all__ = [
    "Conditions",
    "Host",
    "Network",
    "SimulatedWorld",
    "Simulation",
    "run_simulation",
    "running_broker",
    "simulation",
]
