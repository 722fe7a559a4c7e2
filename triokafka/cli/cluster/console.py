"""The console of ``triokafka cluster --console``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from triokafka.cli.broker_console import open_console
from triokafka.cli.cluster.free_ports import free_ports
from triokafka.cli.cluster.layout import ClusterLayout
from triokafka.cli.cluster.processes import ChildProcess, OpenConsole, Start
from triokafka.cli.cluster.switches import ProcessSwitches
from triokafka.structs import address_text

_LOOPBACK = "127.0.0.1"


def metrics_addresses(layout: ClusterLayout) -> dict[int, str]:
    """Choose an address on loopback for the metrics of each node, by its id."""
    taken = [node.port for node in layout.nodes]
    ports = free_ports(len(layout.nodes), _LOOPBACK, without=taken)
    return {node.node_id: address_text(_LOOPBACK, port) for node, port in zip(layout.nodes, ports, strict=True)}


def cluster_console(
    layout: ClusterLayout, address: tuple[str, int], metrics: Mapping[int, str], *, allow_changes: bool
) -> OpenConsole:
    """Return the function that serves the console of a cluster of processes."""

    async def opened(nursery: trio.Nursery, nodes: Sequence[ChildProcess], start: Start) -> str:
        from triokafka.console.http_get import HttpEndpoint
        from triokafka.console.scraped_metrics import from_endpoint
        from triokafka.world.system import RealWorld

        world = RealWorld()
        sources = {}
        for node_id, text in metrics.items():
            host, _, port = text.rpartition(":")
            sources[f"broker {node_id}"] = from_endpoint(HttpEndpoint(world, host, int(port)))
        return await open_console(
            nursery,
            "--console",
            address,
            layout.bootstrap_servers.split(","),
            world,
            allow_changes=allow_changes,
            metrics=sources,
            faults=ProcessSwitches(nodes, start),
        )

    return opened
