"""Lives of a quorum, one per seed: elections, failures, partitions, lost messages, snapshots and changed voters."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tests.support.raft_simulation import FETCH_TIMEOUT, RaftSimulation, SimulatedNode
from triokafka.broker_stub.raft.leader_state import CHECK_QUORUM_FACTOR, Leader

_SLACK: Final = 0.5


def _voters(seed: int, *, least: int = 3) -> int:
    return random.Random(seed).choice([count for count in (1, 3, 4, 5) if count >= least])


def _pick(simulation: RaftSimulation, nodes: list[SimulatedNode]) -> SimulatedNode:
    return nodes[simulation.random.randrange(len(nodes))]


def first_election(seed: int) -> None:
    """Nodes without any state elect a leader, and commit."""
    RaftSimulation(seed, voters=_voters(seed, least=1), observers=seed % 3, dynamic=seed % 2 == 1).settle()


def leader_is_killed(seed: int) -> None:
    """The leader is killed; another one follows."""
    simulation = RaftSimulation(seed, voters=_voters(seed), observers=seed % 2)
    simulation.settle()
    leader = simulation.leader()
    _replace(simulation, leader, leader.running.quorum.epoch)


def leader_shuts_down(seed: int) -> None:
    """The leader leaves cleanly, and ends its epoch before; another one follows."""
    simulation = RaftSimulation(seed, voters=_voters(seed), observers=seed % 2)
    simulation.settle()
    leader = simulation.leader()
    epoch = leader.running.quorum.epoch
    leader.running.begin_shutdown()
    simulation.step(leader)
    simulation.run_until(lambda: leader.running.may_stop, within=20)
    _replace(simulation, leader, epoch)


def _replace(simulation: RaftSimulation, leader: SimulatedNode, epoch: int) -> None:
    """End the process of this epoch's leader, wait for a later leader, and start the process again."""
    simulation.crash(leader)
    simulation.settle()
    assert simulation.leader().running.quorum.epoch > epoch
    simulation.restart(leader)
    simulation.settle()


def all_fail(seed: int) -> None:
    """All nodes are killed; a majority comes back, with everything that was committed."""
    voters = _voters(seed)
    simulation = RaftSimulation(seed, voters=voters)
    simulation.settle()
    simulation.run(simulation.random.uniform(0, 1))
    nodes = list(simulation.nodes.values())
    for node in nodes:
        simulation.crash(node)
        simulation.run(simulation.random.uniform(0, 0.05))
    simulation.random.shuffle(nodes)
    for node in nodes[: voters // 2 + 1]:
        simulation.restart(node)
    simulation.settle()


def leader_partitioned(seed: int) -> None:
    """The leader is cut off: it resigns within the time of check quorum, and the others go on without it."""
    simulation = RaftSimulation(seed, voters=_voters(seed), observers=seed % 2)
    simulation.settle()
    leader = simulation.leader()
    epoch = leader.running.quorum.epoch
    simulation.isolate(leader.node_id)

    def others_lead() -> bool:
        newest = simulation.leaders
        return bool(newest) and newest[0] is not leader

    def resigned() -> bool:
        return not isinstance(leader.running.quorum.state, Leader)

    simulation.run_until(resigned, within=FETCH_TIMEOUT * CHECK_QUORUM_FACTOR + _SLACK)
    simulation.run_until(others_lead, within=30)
    assert leader.running.quorum.epoch <= epoch + 1, "a node without a majority raises its epoch"
    simulation.heal()
    simulation.settle()


def minority_partitioned(seed: int) -> None:
    """Only a majority is reachable: it makes progress, and the leader stays when the others come back."""
    simulation = RaftSimulation(seed, voters=_voters(seed))
    simulation.settle()
    leader = simulation.leader()
    count = (len(simulation.first_voters) - 1) // 2
    others = [node for node in simulation.nodes.values() if node is not leader]
    simulation.random.shuffle(others)
    minority = others[:count]
    # Without new records, the logs of the nodes that were away are as long as the others.
    simulation.is_appending = seed % 2 == 0
    simulation.run(1.0)
    simulation.isolate(*(node.node_id for node in minority))
    target = leader.log.end_offset + 10 * simulation.is_appending
    simulation.run_until(lambda: leader.high_watermark >= target, within=30)
    simulation.run(simulation.random.uniform(3, 8))
    epoch = leader.running.quorum.epoch
    simulation.heal()
    simulation.run(3)
    simulation.is_appending = True
    simulation.settle()
    assert simulation.leader() is leader, "nodes that came back have ended the epoch of a working leader"
    assert leader.running.quorum.epoch == epoch


def back_to_back_failures(seed: int) -> None:
    """Leaders fail one after the other, each as soon as it is elected."""
    simulation = RaftSimulation(seed, voters=5 if seed % 2 else 3)
    simulation.settle()
    for _ in range(5):
        leader = simulation.leader()
        simulation.crash(leader)
        simulation.run_until(lambda: bool(simulation.leaders), within=40)
        simulation.run(simulation.random.uniform(0, 0.1))
        simulation.restart(leader)
        simulation.run_until(lambda: bool(simulation.leaders), within=40)
    simulation.settle()


def disk_lost(seed: int) -> None:
    """One node loses its disk with committed records; the others have them."""
    simulation = RaftSimulation(seed, voters=_voters(seed), snapshots=seed % 2 == 1)
    simulation.settle()
    node = _pick(simulation, simulation.up)
    simulation.crash(node)
    simulation.settle()
    simulation.wipe(node)
    simulation.restart(node)
    simulation.settle()


def lossy_network(seed: int) -> None:
    """Messages are lost, doubled, and overtake each other; leaders change, and nothing that was committed is lost."""
    simulation = RaftSimulation(seed, voters=_voters(seed), observers=seed % 2, loss=0.08, duplication=0.1, latency=0.2)
    simulation.run_until(simulation.agree, within=120)
    simulation.run(3)
    simulation.crash(simulation.leader() if simulation.leaders else _pick(simulation, simulation.up))
    simulation.run(3)
    for node in simulation.nodes.values():
        simulation.restart(node)
    simulation.loss = simulation.duplication = 0.0
    simulation.settle()


def chaos(seed: int) -> None:
    """Nodes crash and come back, networks break and heal, at any moment; at the end the quorum works."""
    dynamic, snapshots = seed % 2 == 1, seed % 3 == 0
    simulation = RaftSimulation(
        seed, voters=_voters(seed), observers=seed % 2, loss=0.02, duplication=0.03, latency=0.08, dynamic=dynamic,
        snapshots=snapshots, append_every=0.08,
    )  # fmt: skip
    for _ in range(25):
        _disturb(simulation)
        simulation.run(simulation.random.uniform(0.02, 1.2))
    _repair(simulation)
    simulation.settle(within=120)


def _disturb(simulation: RaftSimulation) -> None:
    match simulation.random.randrange(7):
        case 0 | 1:
            if simulation.up:
                simulation.crash(_pick(simulation, simulation.up))
        case 2:
            if simulation.leaders:
                simulation.crash(simulation.leader())
        case 3:
            if simulation.up:
                simulation.isolate(_pick(simulation, simulation.up).node_id)
        case 4:
            simulation.heal()
        case _:
            for node in simulation.nodes.values():
                simulation.restart(node)


def _repair(simulation: RaftSimulation) -> None:
    simulation.loss = simulation.duplication = 0.0
    simulation.heal()
    for node in simulation.nodes.values():
        simulation.restart(node)


def contested_elections(seed: int) -> None:
    """Several candidates ask at the same time, while voters crash and come back at once."""
    simulation = RaftSimulation(seed, voters=5, latency=0.7, loss=0.1, append_every=1.0)
    for _ in range(4):
        # All lose the leader at the same time, and so become candidates at the same time.
        for action in (simulation.crash, simulation.restart):
            for node in simulation.nodes.values():
                action(node)
        simulation.run(0.9)
        for _ in range(25):
            simulation.run(simulation.random.uniform(0.01, 0.25))
            node = _pick(simulation, simulation.up)
            if node.election is not None and node.election.voted not in (None, node.key):
                simulation.crash(node)
                simulation.restart(node)
    simulation.latency, simulation.loss = 0.03, 0.0
    simulation.settle(within=120)


def snapshots(seed: int) -> None:
    """A node that was away finds its records only in snapshots, which arrive in parts, while leaders change."""
    simulation = RaftSimulation(
        seed, voters=3, observers=seed % 2, dynamic=seed % 4 > 1, snapshots=True, append_every=0.08
    )
    simulation.settle()
    for _ in range(3):
        node = _pick(simulation, simulation.up)
        if simulation.random.random() < 0.5:
            simulation.crash(node)
        else:
            simulation.isolate(node.node_id)
        simulation.run(simulation.random.uniform(1, 6))
        simulation.heal()
        simulation.restart(node)
        if simulation.random.random() < 0.5 and simulation.leaders:
            simulation.run(simulation.random.uniform(0, 0.2))
            if simulation.leaders:
                simulation.crash(simulation.leader())
            simulation.run(simulation.random.uniform(0, 3))
            for other in simulation.nodes.values():
                simulation.restart(other)
    simulation.settle(within=120)


def voters_change(seed: int) -> None:
    """Voters are added and removed, the leader included, while nodes crash."""
    simulation = RaftSimulation(
        seed, voters=(1, 3, 3)[seed % 3], dynamic=True, snapshots=seed % 2 == 1, loss=0.01 * (seed % 2)
    )
    simulation.run_until(simulation.agree, within=60)
    changes: list[Callable[[], None]] = [
        lambda: _add(simulation),
        lambda: _remove(simulation),
        lambda: _crash_one(simulation),
    ]
    simulation.add_node()
    simulation.run(2)
    for _ in range(8):
        simulation.random.choice(changes)()
        simulation.run(simulation.random.uniform(0.01, 2.5))
        for node in simulation.nodes.values():
            simulation.restart(node)
    simulation.loss = 0.0
    _settle_voters(simulation)


def controllers_join(seed: int) -> None:
    """Controllers without a vote become voters on their own, one of them with another disk than before."""
    simulation = RaftSimulation(
        seed, voters=1 + seed % 3, observers=1 + seed % 2, dynamic=True, auto_join=True, loss=0.01 * (seed % 2)
    )
    if len(simulation.first_voters) == 3:
        simulation.run_until(simulation.agree, within=60)
        node = _pick(simulation, simulation.up)
        simulation.crash(node)
        simulation.run(0.1)
        simulation.wipe(node)
        simulation.restart(node)

    simulation.run_until(lambda: _all_vote(simulation), within=120)
    simulation.loss = 0.0
    _settle_voters(simulation)


def removal_interrupted(seed: int) -> None:
    """All nodes crash while a voter is removed; those that know of it and those that do not find one leader."""
    simulation = RaftSimulation(seed, voters=2 + seed % 2, dynamic=True, append_every=0.03)
    simulation.run_until(simulation.agree, within=60)
    simulation.run(1)
    for _ in range(4):
        voting = _voting(simulation)
        if len(voting) < 2:
            simulation.run_until(lambda: bool(simulation.leaders), within=60)
            for node in simulation.up:
                if node not in _voting(simulation):
                    simulation.add_voter(node)
                    simulation.run(1)
            continue
        leader = simulation.leader()
        simulation.remove_voter(leader if simulation.random.random() < 0.6 else _pick(simulation, voting))
        for node in sorted(simulation.up, key=lambda node: simulation.random.random()):
            simulation.run(simulation.random.uniform(0, 0.025))
            simulation.crash(node)
        for node in simulation.nodes.values():
            simulation.restart(node)
        simulation.run_until(simulation.agree, within=60)
    _settle_voters(simulation)


def isolated_leader_changes_voters(seed: int) -> None:
    """A leader that is cut off changes the voters again and again; the others do not, and prevail."""
    simulation = RaftSimulation(seed, voters=3 + 2 * (seed % 2), dynamic=True, append_every=0.3)
    simulation.run_until(simulation.agree, within=60)
    simulation.run(1)
    leader = simulation.leader()
    simulation.isolate(leader.node_id)
    for _ in range(12):
        simulation.run(0.25)
        others = [node for node in simulation.up if node is not leader]
        if isinstance(leader.running.quorum.state, Leader):
            simulation.remove_voter(_pick(simulation, others), leader=leader)
    simulation.run(3)
    simulation.heal()
    _settle_voters(simulation)


def voters_change_while_cut(seed: int) -> None:
    """Voters are added and removed while the network breaks and heals, in one direction too, and nodes crash.

    Every node that considers itself the leader is asked, also one that has been cut off.
    """
    simulation = RaftSimulation(
        seed, voters=(2, 3, 3, 4)[seed % 4], dynamic=True, snapshots=seed % 2 == 1, append_every=0.3,
        auto_join=seed % 5 == 4,
    )  # fmt: skip
    simulation.run_until(simulation.agree, within=60)
    for _ in range(1 + seed % 2):
        simulation.add_node()
    simulation.run(2)
    for _ in range(8):
        _cut_or_heal(simulation)
        simulation.run(simulation.random.uniform(0, 0.1))
        for leader in simulation.leaders:
            if isinstance(leader.running.quorum.state, Leader):
                _change_voters(simulation, leader)
        simulation.run(simulation.random.uniform(0, 0.1))
        if simulation.random.random() < 0.4:
            _crash_one(simulation)
        simulation.run(simulation.random.uniform(0.05, 2.0))
        for node in simulation.nodes.values():
            simulation.restart(node)
    _repair(simulation)
    if simulation.auto_join:
        simulation.run_until(lambda: _all_vote(simulation), within=120)
    _settle_voters(simulation)


def _cut_or_heal(simulation: RaftSimulation) -> None:
    """Cut off the leader, or a part of the nodes, or one direction of a connection; or heal."""
    match simulation.random.randrange(5):
        case 0:
            if simulation.leaders:
                simulation.isolate(simulation.leader().node_id)
        case 1:
            numbers = sorted(simulation.nodes)
            simulation.isolate(*simulation.random.sample(numbers, len(numbers) // 2))
        case 2:
            source, destination = simulation.random.sample(sorted(simulation.nodes), 2)
            simulation.cut.add((source, destination))
        case _:
            simulation.heal()


def _change_voters(simulation: RaftSimulation, leader: SimulatedNode) -> None:
    """Ask this leader to add a node that, to its knowledge, has no vote, or to remove a voter."""
    voters = leader.running.quorum.voters
    voting = [node for node in simulation.nodes.values() if voters.is_voter(node.key)]
    others = [node for node in simulation.up if node not in voting]
    if others and (len(voting) < 3 or simulation.random.random() < 0.5):
        simulation.add_voter(_pick(simulation, others), leader=leader)
    elif len(voting) > 2:
        simulation.remove_voter(_pick(simulation, voting), leader=leader)


def _settle_voters(simulation: RaftSimulation) -> None:
    """Let the quorum settle, and compare the voters that each node knows with the committed ones."""
    simulation.run_until(lambda: bool(simulation.leaders), within=60)
    simulation.settle(within=120)
    committed = simulation.invariants.voter_sets[-1][1]
    for node in simulation.up:
        assert node.running.quorum.voters == committed, f"node {node.node_id} has other voters than the committed ones"
    leader = simulation.leader()
    assert committed.is_voter(leader.key), "a node leads that is not a voter"


def _all_vote(simulation: RaftSimulation) -> bool:
    return bool(simulation.leaders) and len(_voting(simulation)) == len(simulation.nodes)


def _voting(simulation: RaftSimulation) -> list[SimulatedNode]:
    voters = simulation.leader().running.quorum.voters if simulation.leaders else None
    return [] if voters is None else [node for node in simulation.nodes.values() if voters.is_voter(node.key)]


def _add(simulation: RaftSimulation) -> None:
    voting = _voting(simulation)
    others = [node for node in simulation.up if node not in voting]
    if not others:
        simulation.add_node()
        simulation.run(1.0)
    elif voting:
        simulation.add_voter(_pick(simulation, others))


def _remove(simulation: RaftSimulation) -> None:
    voting = _voting(simulation)
    if len(voting) > 2 or (len(voting) > 1 and simulation.random.random() < 0.3):
        leader = simulation.leader()
        simulation.remove_voter(leader if simulation.random.random() < 0.4 else _pick(simulation, voting))


def _crash_one(simulation: RaftSimulation) -> None:
    node = simulation.leader() if simulation.leaders and simulation.random.random() < 0.5 else None
    simulation.crash(node if node is not None else _pick(simulation, simulation.up))


_Scenario = Callable[[int], None]


def _named(*scenarios: _Scenario) -> dict[str, _Scenario]:
    return {scenario.__name__: scenario for scenario in scenarios}


#: Those of Kafka's own simulation (``RaftEventSimulationTest``).
KAFKA_SCENARIOS: Final = _named(
    first_election,
    leader_is_killed,
    leader_shuts_down,
    all_fail,
    leader_partitioned,
    minority_partitioned,
    back_to_back_failures,
    disk_lost,
)
SCENARIOS: Final = KAFKA_SCENARIOS | _named(
    lossy_network,
    chaos,
    contested_elections,
    snapshots,
    voters_change,
    controllers_join,
    removal_interrupted,
    isolated_leader_changes_voters,
    voters_change_while_cut,
)
