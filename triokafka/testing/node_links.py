"""The network between the nodes of a test's cluster: which of them cannot reach each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from triokafka.testing.gate import Gate

if TYPE_CHECKING:
    from triokafka.testing.simulated_network import Network


class NodeLinks(Protocol):
    """The network between the nodes of a cluster."""

    def place(self, node_id: int, port: int) -> None:
        """Note that a node listens on a port."""
        ...

    def are_apart(self, one: int, other: int) -> bool:
        """Whether two nodes cannot reach each other."""
        ...

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        """Let nodes reach those of their own group only; all other nodes are a group, too."""
        ...

    def heal(self) -> None:
        """Let all nodes reach each other."""
        ...


class SimulatedLinks:
    """The network of the simulated world between nodes that have a host each.

    Args:
        names: the hosts of the nodes.
    """

    def __init__(self, network: Network, names: Mapping[int, str]) -> None:
        self._network = network
        self._names = names

    def place(self, node_id: int, port: int) -> None:
        """See `NodeLinks`."""

    def are_apart(self, one: int, other: int) -> bool:
        """See `NodeLinks`."""
        names = self._names
        return self._network.is_blocked(names[one], names[other]) or self._network.is_blocked(names[other], names[one])

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        """See `NodeLinks`."""
        self.heal()
        group_of = {node_id: number for number, group in enumerate(groups) for node_id in group}
        nodes = list(self._names.items())
        for number, (node_id, name) in enumerate(nodes):
            for other_id, other in nodes[number + 1 :]:
                if group_of.get(node_id) != group_of.get(other_id):
                    self._network.partition(name, other)

    def heal(self) -> None:
        """See `NodeLinks`. Ends all other partitions and black holes of the network, too."""
        self._network.heal()


class Links:
    """The connections between the nodes of one machine, in one direction each.

    A node is found by the port that another node connects to, so every listener of every node has a port of its own.
    """

    def __init__(self) -> None:
        self._node_of: dict[int, int] = {}
        self._gates: dict[tuple[int, int], Gate] = {}
        self._group_of: dict[int, int] = {}

    def place(self, node_id: int, port: int) -> None:
        """Note that a node listens on a port."""
        if port:
            self._node_of[port] = node_id

    def gate_to(self, source: int, port: int) -> Gate | None:
        """Return the gate that data between a node and a port passes; None if no other node listens there."""
        target = self._node_of.get(port)
        if target is None or target == source:
            return None
        gate = self._gates.get((source, target))
        if gate is None:
            gate = self._gates[source, target] = Gate()
            if self.are_apart(source, target):
                gate.shut()
        return gate

    def are_apart(self, one: int, other: int) -> bool:
        """Whether two nodes cannot reach each other."""
        return self._group_of.get(one) != self._group_of.get(other)

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        """Let nodes reach those of their own group only; all other nodes are a group, too."""
        self._group_of = {node_id: number for number, group in enumerate(groups) for node_id in group}
        for (one, other), gate in self._gates.items():
            if self.are_apart(one, other):
                gate.shut()
            else:
                gate.open()

    def heal(self) -> None:
        """Let all nodes reach each other."""
        self.partition(())


def checked_groups(groups: Iterable[Iterable[int]]) -> list[frozenset[int]]:
    """Return the groups of a partition. Raises `ValueError` if a node is in two of them."""
    checked = [frozenset(group) for group in groups]
    seen: set[int] = set()
    for group in checked:
        twice = sorted(group & seen)
        if twice:
            raise ValueError(f"node {twice[0]} is in two groups of the partition")
        seen |= group
    return checked
