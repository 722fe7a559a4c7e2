"""``triokafka quorum``: describe the metadata quorum, add and remove controllers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from triokafka.cli.connection import AdminConnection, admin_options
from triokafka.cli.output import CommandGroup, examples, output_options, print_json
from triokafka.cli.values import Whole, configured, text_of_file

if TYPE_CHECKING:
    from uuid import UUID

    from triokafka import AdminClient
    from triokafka.client.admin import QuorumDescription


@click.group("quorum", cls=CommandGroup)
def command() -> None:
    """Describe the metadata quorum, add and remove controllers."""


@command.command(
    "describe",
    epilog=examples("triokafka quorum describe", "triokafka quorum describe --replication --json"),
)
@click.option("--replication", is_flag=True, help="Print one line for each replica of the metadata log.")
@output_options
@admin_options
def describe(replication: bool, output: str, connection: AdminConnection) -> int:
    """Print the leader of the metadata quorum, its voters and observers, and how far behind they are."""

    async def work(admin: AdminClient) -> None:
        found = await admin.describe_metadata_quorum()
        if output == "json":
            print_json(_document(found))
        elif replication:
            _print_replicas(found)
        else:
            cluster = await admin.describe_cluster()
            _print_status(found, cluster.cluster_id)

    return connection.run(work)


@command.command("add-controller", epilog=examples("triokafka quorum add-controller --config controller4.properties"))
@click.option(
    "--config", "config_file", required=True, metavar="FILE", help="server.properties of the controller to add."
)
@admin_options
def add_controller(config_file: str, connection: AdminConnection) -> int:
    """Make a running controller a voter. Run this on its machine: its directory has the id that the quorum needs.

    The voters must not be fixed by controller.quorum.voters. Format its directories with --no-initial-controllers,
    start it, and wait until `quorum describe --replication` shows no lag.
    """
    node_id, directory_id, cluster_id, listeners = _controller_of(config_file)

    async def work(admin: AdminClient) -> None:
        await admin.add_raft_voter(node_id, directory_id, listeners, cluster_id=cluster_id)
        click.echo(f"Added controller {node_id} with directory id {_text(directory_id)}.")

    return connection.run(work)


@command.command(
    "remove-controller",
    epilog=examples("triokafka quorum remove-controller --controller-id 3 --controller-directory-id Bnq…"),
)
@click.option("--controller-id", type=Whole(min=0), required=True, metavar="ID", help="The controller's node id.")
@click.option(
    "--controller-directory-id", required=True, metavar="ID", help="The directory id, which `quorum describe` prints."
)
@admin_options
def remove_controller(controller_id: int, controller_directory_id: str, connection: AdminConnection) -> int:
    """Remove a controller from the voters. Stop it first, unless it shall continue as an observer."""
    from triokafka.structs import parse_uuid

    try:
        directory_id = parse_uuid(controller_directory_id)
    except ValueError as error:
        raise click.UsageError(f"--controller-directory-id: {error}.") from None

    async def work(admin: AdminClient) -> None:
        await admin.remove_raft_voter(controller_id, directory_id)
        click.echo(f"Removed controller {controller_id} with directory id {controller_directory_id}.")

    return connection.run(work)


def _controller_of(config_file: str) -> tuple[int, UUID, str, dict[str, tuple[str, int]]]:
    """Return node id, directory id, cluster id and listeners of the controller with this configuration."""
    from triokafka.broker_stub.config import BrokerConfig, parse_properties
    from triokafka.broker_stub.raft_options import controller_endpoints
    from triokafka.structs import parse_uuid

    properties = configured(parse_properties, text_of_file(config_file), source=config_file)
    config = configured(BrokerConfig.from_properties, properties)
    if not config.controller_listeners:
        raise click.UsageError(f"{config_file}: the node has no listener of controller.listener.names.")
    path = f"{config.metadata_directory}/meta.properties"
    own = configured(parse_properties, text_of_file(path, "--config"), source=path)
    if "directory.id" not in own or "cluster.id" not in own:
        raise click.UsageError(f"{path} has no directory.id or no cluster.id. Format the directory first.")
    listeners = {end.listener: (end.host, end.port) for end in controller_endpoints(config)}
    return config.node_id, parse_uuid(own["directory.id"]), own["cluster.id"], listeners


def _text(directory_id: UUID | None) -> str:
    from triokafka.structs import format_uuid

    return "-" if directory_id is None else format_uuid(directory_id)


def _print_status(found: QuorumDescription, cluster_id: str | None) -> None:
    ends = {replica.replica_id: replica.log_end_offset for replica in found.voters}
    leader_end = ends.get(found.leader_id, found.high_watermark)
    known = [end for number, end in ends.items() if number != found.leader_id and end >= 0]
    click.echo(f"ClusterId:              {cluster_id}")
    click.echo(f"LeaderId:               {found.leader_id}")
    click.echo(f"LeaderEpoch:            {found.leader_epoch}")
    click.echo(f"HighWatermark:          {found.high_watermark}")
    click.echo(f"MaxFollowerLag:         {max((leader_end - end for end in known), default=0)}")
    for title, replicas in (("CurrentVoters", found.voters), ("CurrentObservers", found.observers)):
        shown = ", ".join(
            f"{replica.replica_id}" + (f" ({_text(replica.directory_id)})" if replica.directory_id else "")
            for replica in replicas
        )
        click.echo(f"{title + ':':<23} {shown}")


def _print_replicas(found: QuorumDescription) -> None:
    ends = {replica.replica_id: replica.log_end_offset for replica in found.voters}
    leader_end = ends.get(found.leader_id, found.high_watermark)
    now_ms = int(time.time() * 1000)
    click.echo("NodeId\tDirectoryId\tLogEndOffset\tLag\tLastFetch\tLastCaughtUp\tStatus")
    for status, replicas in (("Follower", found.voters), ("Observer", found.observers)):
        for replica in replicas:
            is_leader = replica.replica_id == found.leader_id
            click.echo(
                f"{replica.replica_id}\t{_text(replica.directory_id)}\t{replica.log_end_offset}\t"
                f"{leader_end - replica.log_end_offset}\t{_ago(replica.last_fetch_timestamp, now_ms)}\t"
                f"{_ago(replica.last_caught_up_timestamp, now_ms)}\t{'Leader' if is_leader else status}"
            )


def _ago(timestamp_ms: int | None, now_ms: int) -> str:
    return "-" if timestamp_ms is None else f"{max(0, now_ms - timestamp_ms)} ms ago"


def _document(found: QuorumDescription) -> dict[str, Any]:
    def replicas(some: Any) -> list[dict[str, Any]]:
        return [
            {
                "node_id": replica.replica_id,
                "directory_id": None if replica.directory_id is None else _text(replica.directory_id),
                "log_end_offset": replica.log_end_offset,
                "last_fetch_timestamp_ms": replica.last_fetch_timestamp,
                "last_caught_up_timestamp_ms": replica.last_caught_up_timestamp,
            }
            for replica in some
        ]

    return {
        "leader_id": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "voters": replicas(found.voters),
        "observers": replicas(found.observers),
        "nodes": {str(number): [f"{node.host}:{node.port}" for node in nodes] for number, nodes in found.nodes.items()},
    }
