"""``triokafka cluster``: several nodes, each a process of its own, over one directory.

`layout` writes the configuration of each node, `processes` starts and watches them.
"""

from __future__ import annotations

from functools import partial

import click

from triokafka.cli.output import examples
from triokafka.cli.parameter_types import Integer


@click.command(
    "cluster",
    epilog=examples(
        "triokafka cluster --nodes 3 --data-dir ./cluster",
        "triokafka cluster --nodes 3 --data-dir ./cluster --listen 127.0.0.1:0 --set num.partitions=3",
    ),
)
@click.option(
    "--nodes", type=Integer(min=1, max=99), default=3, show_default=True, metavar="N", help="Number of nodes."
)
@click.option(
    "--data-dir", "directory", required=True, metavar="DIR", help="Directory of the cluster, with one for each node."
)
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the first broker; the others take the ports after it. Port 0 takes free ones.",
)
@click.option(
    "--console",
    metavar="HOST:PORT",
    help="Serve a web page of the cluster, with metrics of all nodes and switches to freeze, kill and start them; "
    'the "ready" line is followed by its address.',
)
@click.option("--console-allow-changes", "console_changes", is_flag=True, help="Let the page change the cluster.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set one property on every node.")
@click.option("--verbose", "-v", count=True, help="Log more into DIR/node-N/node.log; -vv also every request.")
def command(
    nodes: int,
    directory: str,
    listen: str,
    console: str | None,
    console_changes: bool,
    settings: tuple[str, ...],
    verbose: int,
) -> int:
    """Run a cluster of processes, and print "ready HOST:PORT,HOST:PORT,..." once all nodes accept connections.

    Every node is a broker; the first three are also the controllers, or the first one of two nodes. A node that ends
    is reported and not restarted: the others continue, as long as a majority of the controllers runs. SIGTERM, SIGINT
    and SIGHUP shut all nodes down cleanly. The exit status is 1 if a node ended by itself.
    """
    import trio

    from triokafka.cli.broker_console import console_address
    from triokafka.cli.broker_options import WrongUse, address_of, property_of
    from triokafka.cli.cluster.console import cluster_console, metrics_addresses
    from triokafka.cli.cluster.layout import ClusterLayout
    from triokafka.cli.cluster.processes import run_cluster

    try:
        host, port = address_of("--listen", listen)
        properties = dict(property_of(setting) for setting in settings)
        layout = ClusterLayout.of(directory, nodes, host, port, properties)
        if console_changes and console is None:
            raise WrongUse("--console-allow-changes needs --console HOST:PORT.")
        page = None if console is None else console_address("--console", console)
    except WrongUse as error:
        raise click.UsageError(str(error)) from None
    if page is None:
        return trio.run(run_cluster, layout, verbose)
    metrics = metrics_addresses(layout)
    opened = cluster_console(layout, page, metrics, allow_changes=console_changes)
    return trio.run(partial(run_cluster, layout, verbose, metrics=metrics, console=opened))
