"""``triokafka quorum``: describe the metadata quorum, add and remove controllers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click

from triokafka.cli.connection import admin_command, controller_option
from triokafka.cli.output import CommandGroup, examples, output_options, print_json
from triokafka.cli.parameter_types import Integer, configured, text_of_file
from triokafka.structs import address_text, format_uuid, parse_uuid

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import QuorumDescription, QuorumReplica

_NONE: Final = UUID(int=0)
"""What Kafka's tool prints of a directory without an id."""


@click.group("quorum", cls=CommandGroup)
def command() -> None:
    """Describe the metadata quorum, add and remove controllers."""


@command.command(
    "describe",
    epilog=examples(
        "triokafka quorum describe",
        "triokafka quorum describe --replication --human-readable",
        "triokafka quorum describe --replication --json",
    ),
)
@click.option("--status", is_flag=True, help="Print the quorum as a whole. This is the default.")
@click.option("--replication", is_flag=True, help="Print one line for each replica of the metadata log.")
@click.option("--human-readable", "since", is_flag=True, help="With --replication: print times as time since then.")
@output_options
@controller_option
@admin_command
async def describe(admin: AdminClient, status: bool, replication: bool, since: bool, output: str) -> None:
    """Print the leader of the metadata quorum, its voters and observers, and how far behind they are."""
    if status and replication:
        raise click.UsageError("--status and --replication exclude each other.")
    found = await admin.describe_metadata_quorum()
    if output == "json":
        print_json(_document(found))
    elif replication:
        _print_replicas(found, since=since)
    else:
        cluster = await admin.describe_cluster()
        _print_status(found, cluster.cluster_id)


@command.command("add-controller", epilog=examples("triokafka quorum add-controller --config controller4.properties"))
@click.option(
    "--config", "config_file", required=True, metavar="FILE", help="server.properties of the controller to add."
)
@click.option("--dry-run", is_flag=True, help="Read the configuration and print what would be done.")
@controller_option
@admin_command
async def add_controller(admin: AdminClient, config_file: str, dry_run: bool) -> None:
    """Make a running controller a voter. Run this on its machine: its directory has the id that the quorum needs.

    The voters must not be fixed by controller.quorum.voters. Format its directories with --no-initial-controllers,
    start it, and wait until `quorum describe --replication` shows no lag.
    """
    node_id, directory_id, cluster_id, listeners = _controller_of(config_file)
    if dry_run:
        click.echo(f"Would add controller {node_id} with directory id {format_uuid(directory_id)}.")
        return
    await admin.add_raft_voter(node_id, directory_id, listeners, cluster_id=cluster_id)
    click.echo(f"Added controller {node_id} with directory id {format_uuid(directory_id)}.")


@command.command(
    "remove-controller",
    epilog=examples("triokafka quorum remove-controller --controller-id 3 --controller-directory-id Bnq…"),
)
@click.option("--controller-id", type=Integer(min=0), required=True, metavar="ID", help="The controller's node id.")
@click.option(
    "--controller-directory-id", required=True, metavar="ID", help="The directory id, which `quorum describe` prints."
)
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@controller_option
@admin_command
async def remove_controller(
    admin: AdminClient, controller_id: int, controller_directory_id: str, dry_run: bool
) -> None:
    """Remove a controller from the voters. Stop it first, unless it shall continue as an observer."""
    try:
        directory_id = parse_uuid(controller_directory_id)
    except ValueError as error:
        raise click.UsageError(f"--controller-directory-id: {error}.") from None
    if dry_run:
        click.echo(f"Would remove controller {controller_id} with directory id {controller_directory_id}.")
        return
    await admin.remove_raft_voter(controller_id, directory_id)
    click.echo(f"Removed controller {controller_id} with directory id {controller_directory_id}.")


def _controller_of(config_file: str) -> tuple[int, UUID, str, dict[str, tuple[str, int]]]:
    """Return node id, directory id, cluster id and listeners of the controller with this configuration."""
    from triokafka.broker_stub.config import BrokerConfig, parse_properties
    from triokafka.broker_stub.raft_options import controller_endpoints

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


def _print_status(found: QuorumDescription, cluster_id: str | None) -> None:
    leader = next((replica for replica in found.voters if replica.replica_id == found.leader_id), None)
    last = min(found.voters, key=lambda replica: replica.log_end_offset, default=None)
    lag = lag_ms = 0
    if leader is not None and last is not None and last is not leader:
        lag = leader.log_end_offset - last.log_end_offset
        times = (leader.last_caught_up_timestamp, last.last_caught_up_timestamp)
        lag_ms = -1 if times[0] is None or times[1] is None else times[0] - times[1]
    for name, value in (
        ("ClusterId", cluster_id),
        ("LeaderId", found.leader_id),
        ("LeaderEpoch", found.leader_epoch),
        ("HighWatermark", found.high_watermark),
        ("MaxFollowerLag", lag),
        ("MaxFollowerLagTimeMs", lag_ms),
        ("CurrentVoters", _replicas(found, found.voters)),
        ("CurrentObservers", _replicas(found, found.observers)),
    ):
        click.echo(f"{name + ':':<23} {value}")


def _replicas(found: QuorumDescription, replicas: Sequence[QuorumReplica]) -> str:
    """Return replicas as a JSON list, in the form of Kafka's tool."""
    import json

    entries: list[dict[str, Any]] = []
    for replica in replicas:
        entry: dict[str, Any] = {"id": replica.replica_id}
        if replica.directory_id is not None:
            entry["directoryId"] = format_uuid(replica.directory_id)
        if listeners := found.listeners.get(replica.replica_id):
            entry["endpoints"] = [f"{name}://{address_text(*at)}" for name, at in listeners.items()]
        entries.append(entry)
    return json.dumps(entries)


def _print_replicas(found: QuorumDescription, *, since: bool) -> None:
    leader = [replica for replica in found.voters if replica.replica_id == found.leader_id]
    followers = [replica for replica in found.voters if replica.replica_id != found.leader_id]
    end = leader[0].log_end_offset if leader else found.high_watermark
    now_ms = int(time.time() * 1000)
    click.echo("NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\tStatus")
    for status, replicas in (("Leader", leader), ("Follower", followers), ("Observer", found.observers)):
        for replica in replicas:
            fetched, caught_up = (
                "-1" if at is None else f"{max(0, now_ms - at)} ms ago" if since else str(at)
                for at in (replica.last_fetch_timestamp, replica.last_caught_up_timestamp)
            )
            click.echo(
                f"{replica.replica_id:<6}\t{format_uuid(replica.directory_id or _NONE)}\t{replica.log_end_offset:<12}\t"
                f"{end - replica.log_end_offset:<3}\t{fetched:<18}\t{caught_up:<21}\t{status}"
            )


def _document(found: QuorumDescription) -> dict[str, Any]:
    def replicas(some: Any) -> list[dict[str, Any]]:
        return [
            {
                "node_id": replica.replica_id,
                "directory_id": None if replica.directory_id is None else format_uuid(replica.directory_id),
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
