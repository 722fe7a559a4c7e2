"""The configurations of the nodes of a test's cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from triokafka.structs import address_text, format_uuid

if TYPE_CHECKING:
    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.world import Storage, World

_CONTROLLER: Final = "CONTROLLER"
_MOST_CONTROLLERS: Final = 3


def number_of_controllers(nodes: int) -> int:
    """Return how many nodes vote by default: all of up to three, but one of two, which could not lose any other."""
    return 1 if nodes < _MOST_CONTROLLERS else _MOST_CONTROLLERS


def check_size(nodes: int, controllers: int | None) -> None:
    """Raise `ValueError` if there is no such cluster."""
    if nodes < 1:
        raise ValueError(f"a cluster has at least one node, not {nodes}")
    if controllers is not None and not 1 <= controllers <= nodes:
        raise ValueError(f"of {nodes} nodes 1 to {nodes} can be controllers, not {controllers}")


def node_configs(config: BrokerConfig, nodes: int, controllers: Sequence[tuple[str, int]]) -> list[BrokerConfig]:
    """Return the configuration of each node of a cluster, from what all have in common.

    Ids count up from that of ``config``, and so do explicit ports. The data of a node is in ``broker-ID`` of each
    directory.

    Args:
        controllers: the addresses of the controller listeners of the first nodes, which vote.
    """
    first = config.node_id
    voters = tuple(f"{first + number}@{address_text(host, port)}" for number, (host, port) in enumerate(controllers))
    found = []
    for number in range(nodes):
        listeners = _counted_up(config.listeners, number)
        roles: tuple[str, ...] = ("broker",)
        if number < len(controllers):
            roles = ("broker", "controller")
            listeners = (*listeners, f"{_CONTROLLER}://{address_text(*controllers[number])}")
        own = f"broker-{first + number}"
        found.append(
            replace(
                config,
                node_id=first + number,
                process_roles=roles,
                listeners=listeners,
                advertised_listeners=_counted_up(config.advertised_listeners, number)
                if config.advertised_listeners
                else None,
                controller_listener_names=(_CONTROLLER,),
                controller_quorum_voters=voters,
                log_dirs=tuple(f"{directory}/{own}" for directory in config.data_directories),
                metadata_log_dir=f"{config.metadata_log_dir}/{own}" if config.metadata_log_dir else None,
            )
        )
    return found


def _counted_up(listeners: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the listeners of the ``number``-th node; explicit ports are counted up from the first node's."""
    found = []
    for listener in listeners:
        address, _, port = listener.rpartition(":")
        found.append(f"{address}:{int(port) + number if int(port) else 0}")
    return tuple(found)


def cluster_id_of(configs: Sequence[BrokerConfig], storages: Sequence[Storage], world: World) -> str:
    """Return the cluster id in the data directories of an earlier run, or a new one.

    Raises:
        ConfigurationError: a ``meta.properties`` is malformed.
    """
    from triokafka.broker_stub.config import parse_properties
    from triokafka.broker_stub.meta_properties import FILE_NAME

    for config, storage in zip(configs, storages, strict=True):
        for directory in config.data_directories:
            path = os.path.join(directory, FILE_NAME)
            if storage.exists(path):
                found = parse_properties(storage.read_file(path).decode("utf-8", "replace"), source=path)
                if "cluster.id" in found:
                    return found["cluster.id"]
    return format_uuid(world.uuid())
