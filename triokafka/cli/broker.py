"""``triokafka broker``: one broker node in the foreground."""

from __future__ import annotations

from typing import Any

import click

from triokafka.cli.broker_options import BrokerOptions, WrongUse
from triokafka.cli.output import examples
from triokafka.cli.parameter_types import Integer, configured, text_of_file


@click.command(
    "broker",
    epilog=examples(
        "triokafka broker --in-memory",
        "triokafka broker --data-dir ./data --listen 127.0.0.1:9092",
        "triokafka broker --config server.properties --set num.partitions=3",
    ),
)
@click.option(
    "--listen",
    "listeners",
    multiple=True,
    metavar="HOST:PORT",
    help="Address to listen on; port 0 takes a free one. Repeatable.  [default: 127.0.0.1:9092]",
)
@click.option("--data-dir", "data_directories", multiple=True, metavar="DIR", help="Log directory.")
@click.option("--in-memory", is_flag=True, help="Keep all data in memory until the broker stops.")
@click.option("--config", "config_file", metavar="FILE", help="A server.properties file with Kafka's property names.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set one property; overrides the file.")
@click.option(
    "--control",
    metavar="HOST:PORT",
    help='For tests: faults and metrics over HTTP; the "ready" line is followed by the address. On an address that '
    "other machines can reach, requests need a token: from --control-token-file or TRIOKAFKA_CONTROL_TOKEN, or a "
    "generated one, which the broker prints.",
)
@click.option(
    "--control-token-file",
    metavar="FILE",
    help="File with the token of --control; created with a new token if missing.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help='Serve GET /metrics for Prometheus; the "ready" line is followed by the address.',
)
@click.option(
    "--console",
    metavar="HOST:PORT",
    help="Serve a web page of the cluster, with fault switches if there is --control; "
    'the "ready" line is followed by its address.',
)
@click.option("--console-allow-changes", "console_changes", is_flag=True, help="Let the page change the cluster.")
@click.option(
    "--nodes",
    type=Integer(min=1),
    metavar="N",
    help="For tests: run a cluster of this many brokers in this process, on consecutive ports.",
)
@click.option("--verbose", "-v", count=True, help="Log to standard error; -vv also logs every request.")
def command(config_file: str | None, **options: Any) -> int:
    """Run one broker, and print "ready HOST:PORT" once it accepts connections.

    SIGTERM, SIGINT and SIGHUP (terminal closed) shut it down cleanly: it flushes all logs, and the next start needs no
    recovery.
    """
    from triokafka.cli.broker_run import load, prepare

    load()
    from triokafka.broker_stub.config import parse_properties

    properties: dict[str, str] = {}
    if config_file is not None:
        properties = configured(parse_properties, text_of_file(config_file), source=config_file)
    try:
        run = prepare(BrokerOptions(properties=properties, **options))
    except WrongUse as error:
        raise click.UsageError(str(error)) from None
    return run()
