"""The roles of a node: which listeners belong to which role, and where the quorum's nodes are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from triokafka.broker_stub.config.listeners import ListenerSpec
from triokafka.errors import ConfigurationError
from triokafka.structs import Node


def parse_voters(entries: Iterable[str]) -> tuple[Node, ...]:
    """Parse ``controller.quorum.voters``: entries of the form ``id@host:port``.

    Raises:
        ConfigurationError: an entry is malformed, or two have the same id.
    """
    found: dict[int, Node] = {}
    for entry in entries:
        number, at, address = entry.strip().partition("@")
        host, colon, port = address.rpartition(":")
        if not at or not colon or not number.isdigit() or not port.isdigit() or int(port) > 65535:
            raise ConfigurationError(f"controller.quorum.voters: {entry!r} is not id@host:port")
        if int(number) in found:
            raise ConfigurationError(f"controller.quorum.voters: two voters have the id {number}")
        found[int(number)] = Node(int(number), host.strip("[]"), int(port))
    return tuple(found.values())


def parse_bootstrap_servers(entries: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Parse ``controller.quorum.bootstrap.servers``: entries of the form ``host:port``.

    Raises:
        ConfigurationError: an entry is malformed.
    """
    found: list[tuple[str, int]] = []
    for entry in entries:
        host, colon, port = entry.strip().rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65535:
            raise ConfigurationError(f"controller.quorum.bootstrap.servers: {entry!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    return tuple(found)


def check_roles(
    *,
    node_id: int,
    roles: Collection[str],
    listeners: Sequence[ListenerSpec],
    advertised: Sequence[ListenerSpec],
    controller_names: Sequence[str],
    inter_broker_listener: str | None,
    voters: Sequence[Node],
    bootstrap_servers: Sequence[tuple[str, int]],
) -> None:
    """Check that the options of the roles agree, as Apache Kafka does.

    One combination is allowed here and refused by Kafka: a node with both roles and no controller listener. It is a
    quorum of one that no other node joins.

    Raises:
        ConfigurationError: they contradict each other. The message names the option and the remedy.
    """
    if not roles:
        raise ConfigurationError("process.roles: name broker, controller or both")
    if not controller_names:
        raise ConfigurationError("controller.listener.names: must name at least one listener")
    names = {listener.name for listener in listeners}
    of_controller = {name.upper() for name in controller_names}
    is_voter = any(voter.node_id == node_id for voter in voters)
    if inter_broker_listener and inter_broker_listener.upper() in of_controller:
        raise ConfigurationError(
            f"inter.broker.listener.name: {inter_broker_listener} is a listener of the controller "
            "(controller.listener.names)"
        )
    if "controller" not in roles:
        found = sorted(names & of_controller)
        if found:
            raise ConfigurationError(
                f"listeners: {found[0]} is a listener of the controller (controller.listener.names), and this node "
                "is a broker only (process.roles)"
            )
        if is_voter:
            raise ConfigurationError(
                f"controller.quorum.voters: names this node, {node_id}, which is a broker only (process.roles)"
            )
    if "broker" not in roles:
        others = [listener.name for listener in listeners if listener.name not in of_controller]
        if others:
            raise ConfigurationError(
                f"listeners: {others[0]} is not a listener of the controller (controller.listener.names), and this "
                "node is a controller only (process.roles)"
            )
    for listener in advertised:
        if "broker" in roles and "controller" not in roles and listener.name in of_controller:
            raise ConfigurationError(f"advertised.listeners: {listener.name} is a listener of the controller")
    if "controller" in roles and voters and not is_voter:
        raise ConfigurationError(
            f"controller.quorum.voters: does not name this node, {node_id}, which is a controller (process.roles)"
        )
    serves_controller = bool(names & of_controller)
    if "controller" in roles and not serves_controller:
        if "broker" not in roles:
            raise ConfigurationError("listeners: has no listener of controller.listener.names")
        if len(voters) > 1 or bootstrap_servers:
            raise ConfigurationError(
                "listeners: has no listener of controller.listener.names, so the other nodes of the quorum could not "
                "connect to this one"
            )
    if not voters and not bootstrap_servers and not {"broker", "controller"} <= set(roles):
        raise ConfigurationError(
            "controller.quorum.bootstrap.servers: name the controllers there, or in controller.quorum.voters"
        )
