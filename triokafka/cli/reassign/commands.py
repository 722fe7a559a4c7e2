"""The commands of ``triokafka reassign``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import click
import trio

from triokafka.cli.connection import admin_command, controller_option
from triokafka.cli.output import examples, output_options, print_json
from triokafka.cli.parameter_types import INT64, Integer
from triokafka.cli.reassign import plan as plans
from triokafka.cli.reassign.plan import DIRECTORY_RATE, FOLLOWER_RATE, LEADER_RATE, Moving, Plan
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import ConfigResource

_FILE: Final = "--reassignment-json-file"
_file_option = click.option(_FILE, "file", required=True, metavar="FILE", help="The plan, as generate prints it.")
_LOOKS_AGAIN: Final = 4
_LOOK_AGAIN_SECONDS: Final = 0.25
_keep_option = click.option("--preserve-throttles", is_flag=True, help="Leave the replication throttles as they are.")


@click.command(
    "generate",
    epilog=examples("triokafka reassign generate --topics-to-move-json-file topics.json --broker-list 1,2,3"),
)
@admin_command
@click.option(
    "--topics-to-move-json-file", "file", required=True, metavar="FILE",
    help='The topics: {"topics": [{"topic": "orders"}], "version": 1}',
)  # fmt: skip
@click.option("--broker-list", required=True, metavar="ID,…", help="The brokers to move the topics to.")
@click.option("--disable-rack-aware", is_flag=True, help="Ignore the racks of the brokers.")
@output_options
async def generate(admin: AdminClient, file: str, broker_list: str, disable_rack_aware: bool, output: str) -> None:
    """Print the current assignment of topics and a proposed one over the given brokers; change nothing."""
    topics = plans.read_topics(file, "--topics-to-move-json-file")
    brokers = _broker_ids(broker_list)
    import json
    import random

    states = await _states(admin, topics=topics)
    unknown = sorted(set(topics) - {partition.topic for partition in states})
    if unknown:
        raise click.UsageError(f"--topics-to-move-json-file: there is no topic {', '.join(unknown)}.")
    known = {node.node_id: node.rack for node in (await admin.describe_cluster()).nodes}
    missing = [broker for broker in brokers if broker not in known]
    if missing:
        raise click.UsageError(f"--broker-list: there is no broker {', '.join(map(str, missing))}.")
    racks = {broker: rack for broker in brokers if (rack := known[broker]) is not None}
    if racks and len(racks) < len(brokers) and not disable_rack_aware:
        raise click.UsageError("Not all brokers have a rack. Give --disable-rack-aware to ignore the racks.")
    current = {partition: state.replicas for partition, state in states.items()}
    use_racks = racks if racks and not disable_rack_aware else None
    proposed = plans.propose(current, brokers, use_racks, random.randrange)
    rollback = plans.plan_json(current, await _directories(admin, current))
    if output == "json":
        print_json({"current": json.loads(rollback), "proposed": json.loads(plans.plan_json(proposed))})
        return
    click.echo(f"Current partition replica assignment\n{rollback}\n")
    click.echo(f"Proposed partition reassignment configuration\n{plans.plan_json(proposed)}")


@click.command(
    "execute",
    epilog=examples("triokafka reassign execute --reassignment-json-file plan.json --throttle 50000000"),
)
@admin_command
@_file_option
@click.option("--additional", is_flag=True, help="Begin although other reassignments are in progress; replace theirs.")
@click.option(
    "--throttle", type=Integer(min=1, max=INT64), metavar="BYTES/S", help="Limit the replication between brokers."
)
@click.option(
    "--replica-alter-log-dirs-throttle", "directory_throttle", type=Integer(min=1, max=INT64), metavar="BYTES/S",
    help="Limit the copies between directories of a broker.",
)  # fmt: skip
@click.option(
    "--disallow-replication-factor-change", "fixed_factor", is_flag=True, help="Refuse another number of replicas."
)
async def execute(
    admin: AdminClient,
    file: str,
    additional: bool,
    throttle: int | None,
    directory_throttle: int | None,
    fixed_factor: bool,
) -> int:
    """Begin the reassignments of a plan. Returns at once: verify tells when they are complete."""
    plan = plans.read_plan(file, _FILE)
    states = await _known_states(admin, plan)
    active = await admin.list_partition_reassignments()
    if active and not additional:
        raise click.UsageError(
            f"{len(active)} reassignments are in progress ({', '.join(map(str, sorted(active)[:3]))}…). Wait for "
            "them, cancel them, or give --additional."
        )
    current = {partition: states[partition].target for partition in plan.replicas}
    rollback = plans.plan_json(current, await _directories(admin, current))
    click.echo(f"Current partition replica assignment\n\n{rollback}\n")
    click.echo(f"Save this to use as the {_FILE} option during rollback")
    if throttle is not None or directory_throttle is not None:
        click.echo(
            "Warning: You must run verify periodically, until the reassignment completes, to ensure the throttle "
            "is removed."
        )
        await _set_throttles(admin, plan, states, throttle, directory_throttle)
    await admin.alter_partition_reassignments(plan.replicas, allow_replication_factor_change=not fixed_factor)
    click.echo(f"Successfully started partition reassignments for {','.join(map(str, sorted(plan.replicas)))}")
    if plan.directories:
        await _move_directories(admin, plan)
    return 0


@click.command("verify", epilog=examples("triokafka reassign verify --reassignment-json-file plan.json"))
@admin_command
@_file_option
@_keep_option
@output_options
async def verify(admin: AdminClient, file: str, preserve_throttles: bool, output: str) -> int:
    """Print the progress of a plan, and remove its throttles once no reassignment is in progress."""
    plan = plans.read_plan(file, _FILE)
    states = await _settled_states(admin, plan)
    lines, in_progress = plans.verify(plan.replicas, states)
    active = await admin.list_partition_reassignments()
    settled = not in_progress and not active and not preserve_throttles
    cleared = await _clear_throttles(admin, plan, states) if settled else None
    if output == "json":
        print_json({"partitions": lines, "in_progress": in_progress, "throttles_removed": cleared is not None})
        return 0
    click.echo("Status of partition reassignment:")
    for line in lines:
        click.echo(line)
    if cleared is not None:
        click.echo()
        _echo_cleared(cleared)
    return 0


@click.command("cancel", epilog=examples("triokafka reassign cancel --reassignment-json-file plan.json"))
@admin_command
@_file_option
@_keep_option
async def cancel(admin: AdminClient, file: str, preserve_throttles: bool) -> int:
    """Cancel the active reassignments of a plan: the partitions go back to the replicas that they had."""
    plan = plans.read_plan(file, _FILE)
    active = await admin.list_partition_reassignments(plan.replicas)
    if active:
        await admin.alter_partition_reassignments({partition: None for partition in active})
        click.echo(f"Successfully cancelled partition reassignments for: {','.join(map(str, sorted(active)))}")
    else:
        click.echo("None of the specified partition reassignments are active.")
    if not preserve_throttles and not await admin.list_partition_reassignments():
        states = await _states(admin, topics=sorted({partition.topic for partition in plan.replicas}))
        _echo_cleared(await _clear_throttles(admin, plan, states))
    return 0


@click.command("list", epilog=examples("triokafka reassign list"))
@controller_option
@admin_command
@output_options
async def list_reassignments(admin: AdminClient, output: str) -> None:
    """List the reassignments in progress."""
    active = await admin.list_partition_reassignments()
    if output == "json":
        print_json(
            [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": [*state.replicas],
                    "adding": [*state.adding_replicas],
                    "removing": [*state.removing_replicas],
                }
                for partition, state in sorted(active.items())
            ]
        )
        return
    click.echo("Current partition reassignments:" if active else "No partition reassignments found.")
    for partition, state in sorted(active.items()):
        parts = [f"replicas: {','.join(map(str, state.replicas))}."]
        if state.adding_replicas:
            parts.append(f"adding: {','.join(map(str, state.adding_replicas))}.")
        if state.removing_replicas:
            parts.append(f"removing: {','.join(map(str, state.removing_replicas))}.")
        click.echo(f"{partition}: {' '.join(parts)}")


def _broker_ids(text: str) -> list[int]:
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--broker-list takes broker ids such as 1,2,3, not {text!r}.") from None
    if len(set(brokers)) < len(brokers):
        raise click.UsageError("--broker-list names a broker twice.")
    return brokers


async def _states(admin: AdminClient, *, topics: Iterable[str]) -> dict[TopicPartition, Moving]:
    """Return the state of all partitions of topics that exist.

    The controller is asked for the reassignments first: one that ends meanwhile shows its new replicas then.
    """
    active = await admin.list_partition_reassignments()
    described = await admin.describe_topics(list(topics))
    partitions = {
        TopicPartition(name, partition.partition): tuple(partition.replicas)
        for name in described
        if name not in described.errors
        for partition in described[name].partitions
    }
    return {
        partition: Moving(state.replicas, state.adding_replicas, state.removing_replicas)
        if (state := active.get(partition)) is not None
        else Moving(replicas)
        for partition, replicas in partitions.items()
    }


async def _settled_states(admin: AdminClient, plan: Plan) -> dict[TopicPartition, Moving]:
    """Return the states of the partitions of a plan.

    A partition that no reassignment moves and that differs from the plan is looked at again for a second: the broker
    that describes it may lag behind the controller.
    """
    topics = sorted({partition.topic for partition in plan.replicas})
    states = await _states(admin, topics=topics)
    for _ in range(_LOOKS_AGAIN):
        if not plans.differs(plan.replicas, states):
            break
        await trio.sleep(_LOOK_AGAIN_SECONDS)
        states = await _states(admin, topics=topics)
    return states


async def _known_states(admin: AdminClient, plan: Plan) -> dict[TopicPartition, Moving]:
    """Return the states of the partitions of a plan, and check that they and the brokers exist."""
    states = await _states(admin, topics=sorted({partition.topic for partition in plan.replicas}))
    missing = [partition for partition in plan.replicas if partition not in states]
    if missing:
        raise click.UsageError(f"{_FILE}: there is no partition {', '.join(map(str, missing))}.")
    known = {node.node_id for node in (await admin.describe_cluster()).nodes}
    unknown = sorted({broker for replicas in plan.replicas.values() for broker in replicas} - known)
    if unknown:
        raise click.UsageError(f"{_FILE}: there is no broker {', '.join(map(str, unknown))}.")
    return states


async def _set_throttles(
    admin: AdminClient,
    plan: Plan,
    states: Mapping[TopicPartition, Moving],
    throttle: int | None,
    directory_throttle: int | None,
) -> None:
    from triokafka.client.admin import ConfigResource

    changes: dict[ConfigResource, dict[str, str | None]] = {}
    if throttle is not None:
        for topic, configs in plans.throttled_replicas(plan.replicas, states).items():
            changes[ConfigResource.topic(topic)] = dict(configs)
        for broker in plans.throttled_brokers(plan.replicas, states):
            changes[ConfigResource.broker(broker)] = {LEADER_RATE: str(throttle), FOLLOWER_RATE: str(throttle)}
        click.echo(f"The inter-broker throttle limit was set to {throttle} B/s")
    if directory_throttle is not None:
        for broker in sorted({broker for _, broker in plan.directories}):
            changes.setdefault(ConfigResource.broker(broker), {})[DIRECTORY_RATE] = str(directory_throttle)
        click.echo(f"The replica-alter-dir throttle limit was set to {directory_throttle} B/s")
    if changes:
        await admin.incremental_alter_configs(changes)


def _echo_cleared(cleared: tuple[list[int], list[str]]) -> None:
    brokers, topics = cleared
    click.echo(f"Clearing broker-level throttles on brokers {','.join(map(str, brokers))}")
    if topics:
        click.echo(f"Clearing topic-level throttles on topic{'s' if len(topics) > 1 else ''} {','.join(topics)}")


async def _clear_throttles(
    admin: AdminClient, plan: Plan, states: Mapping[TopicPartition, Moving]
) -> tuple[list[int], list[str]]:
    """Remove the throttles of all brokers and of the plan's topics, and return both."""
    from triokafka.client.admin import ConfigResource

    brokers = sorted(node.node_id for node in (await admin.describe_cluster()).nodes)
    topics = sorted({partition.topic for partition in plan.replicas if partition in states})
    changes: dict[ConfigResource, dict[str, str | None]] = {
        ConfigResource.broker(broker): {LEADER_RATE: None, FOLLOWER_RATE: None, DIRECTORY_RATE: None}
        for broker in brokers
    }
    for topic in topics:
        changes[ConfigResource.topic(topic)] = {plans.LEADER_REPLICAS: None, plans.FOLLOWER_REPLICAS: None}
    await admin.incremental_alter_configs(changes)
    return brokers, topics


async def _directories(admin: AdminClient, current: plans.Assignment) -> dict[tuple[TopicPartition, int], str]:
    """Return the log directories of replicas: a rollback also restores these. One that cannot be read is missing."""
    found: dict[tuple[TopicPartition, int], str] = {}
    described = await admin.describe_log_dirs(sorted({broker for replicas in current.values() for broker in replicas}))
    for broker in described:
        for path, directory in ({} if broker in described.errors else described[broker]).items():
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    found[partition, broker] = path
    return found


async def _move_directories(admin: AdminClient, plan: Plan) -> None:
    from triokafka.client.admin import TopicPartitionReplica

    await admin.alter_replica_log_dirs(
        {
            TopicPartitionReplica(partition.topic, partition.partition, broker): directory
            for (partition, broker), directory in plan.directories.items()
        }
    )
    moves = ",".join(f"{partition}-{broker}" for partition, broker in sorted(plan.directories))
    click.echo(f"Successfully started log directory moves for: {moves}")
