"""The parts of a test's nodes put together: processes, machines, worlds, and the network between them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.faults.faults import Faults
from triokafka.errors import ConfigurationError
from triokafka.testing.broker import RunningBroker
from triokafka.testing.cluster import RunningCluster
from triokafka.testing.cluster_layout import cluster_id_of, node_configs, number_of_controllers
from triokafka.testing.faulty_world import ClockShift, FaultyWorld
from triokafka.testing.machine import LocalMachine, Machine, SimulatedMachine
from triokafka.testing.members import Members
from triokafka.testing.node_links import Links, NodeLinks, SimulatedLinks
from triokafka.testing.node_process import NodeProcess
from triokafka.world.memory import MemoryStorage
from triokafka.world.system import RealWorld

if TYPE_CHECKING:
    import trio

    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.testing.security import BrokerSecurity
    from triokafka.testing.simulation_run import Simulation
    from triokafka.world import World

_LOOPBACK: Final = "127.0.0.1"
_BROKER_PORT: Final = 9092
_CONTROLLER_PORT: Final = 9093


def new_broker(
    config: BrokerConfig, world: World | None, nursery: trio.Nursery, security: BrokerSecurity | None = None
) -> RunningBroker:
    """Return a broker that runs alone; see `running_broker`."""
    own = FaultyWorld(_in_memory() if world is None else world)
    faults = Faults(own.random.random)
    scram = None if security is None else security.scram_credentials
    process = NodeProcess(config, LocalMachine(nursery, own), nursery, faults, scram_credentials=scram)
    return RunningBroker(process, faults, Members(frozenset([config.node_id]), Links()), security)


async def new_cluster(
    config: BrokerConfig,
    nodes: int,
    controllers: int | None,
    world: World | None,
    simulation: Simulation | None,
    nursery: trio.Nursery,
    security: BrokerSecurity | None = None,
) -> RunningCluster:
    """Return a cluster; see `running_cluster`."""
    voters = number_of_controllers(nodes) if controllers is None else controllers
    clock = ClockShift()
    ids = range(config.node_id, config.node_id + nodes)
    machines: list[Machine] = []
    links: NodeLinks
    if simulation is not None:
        names = {node_id: f"node-{node_id}" for node_id in ids}
        links = SimulatedLinks(simulation.network, names)
        for node_id in ids:
            machines.append(SimulatedMachine(simulation.host(names[node_id]), partial(FaultyWorld, clock=clock)))
        addresses = [(names[node_id], _CONTROLLER_PORT) for node_id in ids[:voters]]
    else:
        links = own = Links()
        for node_id in ids:
            gate_to = partial(own.gate_to, node_id)
            of = _in_memory() if world is None else world
            machines.append(LocalMachine(nursery, FaultyWorld(of, clock=clock, gate_to=gate_to)))
        addresses = [await _free_address(machines[number].world) for number in range(voters)]
    configs = node_configs(config, nodes, addresses)
    if simulation is not None:
        configs = [_on_host(one, names[one.node_id]) for one in configs]
    worlds = [machine.world for machine in machines]
    cluster_id = cluster_id_of(configs, [one.storage for one in worlds], worlds[0])
    faults = Faults(worlds[0].random.random)
    members = Members(frozenset(ids[:voters]), links)
    brokers: list[RunningBroker] = []
    for number, (one, machine) in enumerate(zip(configs, machines, strict=True)):
        own_faults = Faults(machine.world.random.random, beside=faults)
        process = NodeProcess(
            one,
            machine,
            nursery,
            own_faults,
            cluster_id=cluster_id,
            elects_at_once=number == 0 and voters > 1,
            scram_credentials=None if security is None else security.scram_credentials,
        )
        brokers.append(RunningBroker(process, own_faults, members, security))
        brokers[-1].place()
    return RunningCluster(faults, members, brokers)


def _in_memory() -> RealWorld:
    world = RealWorld()
    world.storage = MemoryStorage(crashable=False)
    return world


async def _free_address(world: FaultyWorld) -> tuple[str, int]:
    """Return a free address of the machine for a controller; a real one is held until the node listens on it.

    Raises:
        ConfigurationError: the machine has no free port.
    """
    if not world.is_real:
        listener = await world.listen(_LOOPBACK, 0)
        listener.close()
        return listener.address
    address = world.held_ports.hold(_LOOPBACK, 0)
    if address is None:
        raise ConfigurationError(f"no port of {_LOOPBACK} is free for a controller")
    return address


def _on_host(config: BrokerConfig, host: str) -> BrokerConfig:
    """Return the configuration with listeners on a simulated host; free ports become Kafka's."""
    listeners = []
    for listener in config.broker_listeners:
        listeners.append(f"{listener.name}://{host}:{listener.port or _BROKER_PORT}")
    own = [spec for spec in config.listeners if spec.startswith("CONTROLLER://")]
    return replace(config, listeners=(*listeners, *own))
