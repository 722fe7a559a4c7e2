"""``triokafka topics``: list, create, describe, grow and delete topics."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.connection import admin_options, pairs, with_admin
from triokafka.cli.output import CommandGroup, examples, output_options
from triokafka.cli.values import COUNT, Whole

if TYPE_CHECKING:
    from uuid import UUID

    from triokafka import AdminClient
    from triokafka.client.admin import ConfigEntry, PartitionDescription, TopicDescription, TopicListing

_GROUP_OFFSETS: Final = "__consumer_offsets"
_LARGE_MESSAGE: Final = 1_048_588
_REPORTS: Final = {
    "under_replicated": "--under-replicated-partitions",
    "unavailable": "--unavailable-partitions",
    "under_min_isr": "--under-min-isr-partitions",
    "at_min_isr": "--at-min-isr-partitions",
    "with_overrides": "--topics-with-overrides",
}


@click.group("topics", cls=CommandGroup)
def command() -> None:
    """List, create, describe, grow and delete topics.

    Where a command takes topics, a name may be a regular expression, and several may be separated by commas.
    """


@command.command(
    "list",
    epilog=examples(
        "triokafka topics list",
        'triokafka topics list "orders.*,payments" --json',
    ),
)
@click.argument("topics", required=False, metavar="[TOPICS]")
@admin_options
@click.option("--exclude-internal", is_flag=True, help="Leave Kafka's own topics out.")
@output_options
def list_topics(
    topics: str | None, bootstrap: str, settings: Mapping[str, Any], exclude_internal: bool, output: str
) -> int:
    """Print the names of topics: all, or those that TOPICS matches."""

    async def work(admin: AdminClient) -> None:
        found = await _listings(admin, topics, exclude_internal=exclude_internal)
        if output == "json":
            rows = [{"name": t.name, "id": _id_text(t), "internal": t.is_internal} for t in found]
            click.echo(json.dumps(rows, indent=2))
        else:
            for listing in found:
                click.echo(listing.name)

    return with_admin(bootstrap, settings, work)


@command.command(
    "create",
    epilog=examples(
        "triokafka topics create orders --partitions 12 --config retention.ms=3600000",
        "triokafka topics create orders --if-not-exists",
    ),
)
@click.argument("topic")
@admin_options
@click.option("--partitions", type=COUNT, help="How many; the broker's default when left out.")
@click.option(
    "--replication-factor",
    type=Whole(min=1, max=2**15 - 1),
    help="How many replicas; the broker's default when left out.",
)
@click.option(
    "--replica-assignment",
    metavar="B:B,B:B,…",
    help="The brokers of each partition, the preferred leader first: 0:1,1:2 for two partitions.",
)
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A configuration of the topic.")
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change when the topic is there.")
@click.option("--dry-run", is_flag=True, help="Have the broker check everything, and create nothing.")
def create(
    topic: str,
    bootstrap: str,
    settings: Mapping[str, Any],
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> int:
    """Create TOPIC."""
    from triokafka.client.admin import NewTopic
    from triokafka.errors import TopicAlreadyExistsError

    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--replica-assignment excludes --partitions and --replication-factor.")
    assignments = None if replica_assignment is None else dict(enumerate(_assignment(replica_assignment)))
    values = pairs("--config", configs)
    _warn(topic, values)

    async def work(admin: AdminClient) -> None:
        new = NewTopic(topic, partitions or -1, replication_factor or -1, configs=values, assignments=assignments)
        try:
            made = (await admin.create_topics([new], validate_only=dry_run))[topic]
        except TopicAlreadyExistsError:
            if not if_not_exists:
                raise
            click.echo(f"Topic {topic} exists already.")
            return
        if dry_run:
            click.echo(f"Topic {topic} could be created, with {_plural(made.num_partitions, 'partition')}.")
        else:
            click.echo(f"Created topic {topic}.")

    return with_admin(bootstrap, settings, work)


@command.command(
    "describe",
    epilog=examples(
        "triokafka topics describe orders",
        "triokafka topics describe --under-replicated-partitions --json",
    ),
)
@click.argument("topics", required=False, metavar="[TOPICS]")
@admin_options
@click.option("--topic-id", metavar="ID", help="The topic with this id, instead of TOPICS.")
@click.option("--exclude-internal", is_flag=True, help="Leave Kafka's own topics out.")
@click.option(
    "--under-replicated-partitions", "under_replicated", is_flag=True, help="Only those with replicas missing."
)
@click.option("--unavailable-partitions", "unavailable", is_flag=True, help="Only those without a leader.")
@click.option("--under-min-isr-partitions", "under_min_isr", is_flag=True, help="Only those with too few in sync.")
@click.option("--at-min-isr-partitions", "at_min_isr", is_flag=True, help="Only those with just enough in sync.")
@click.option("--topics-with-overrides", "with_overrides", is_flag=True, help="Only topics with a configuration.")
@click.option("--if-exists", is_flag=True, help="Succeed when nothing matches.")
@output_options
def describe(
    topics: str | None,
    bootstrap: str,
    settings: Mapping[str, Any],
    topic_id: str | None,
    exclude_internal: bool,
    if_exists: bool,
    output: str,
    **reports: bool,
) -> int:
    """Print the partitions of topics with leader, replicas and in-sync replicas, and the topics' configurations."""
    chosen = [name for name, wanted in reports.items() if wanted]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(_REPORTS[name] for name in chosen)} exclude each other.")
    if topics is not None and topic_id is not None:
        raise click.UsageError("--topic-id and TOPICS exclude each other.")
    wanted_id = None if topic_id is None else _parse_id(topic_id)
    report = chosen[0] if chosen else None

    async def work(admin: AdminClient) -> None:
        found = await _listings(admin, topics, exclude_internal=exclude_internal)
        if wanted_id is not None:
            found = [listing for listing in found if listing.topic_id == wanted_id]
        if not found and (topics, topic_id) != (None, None) and not if_exists:
            raise _nothing(topics or topic_id or "")
        described = await admin.describe_topics([listing.name for listing in found])
        overrides = await _configs(admin, [listing.name for listing in found])
        shown = [described[listing.name] for listing in found]
        if output == "json":
            click.echo(json.dumps([_as_json(topic, overrides[topic.name], report) for topic in shown], indent=2))
            return
        for topic in shown:
            _print(topic, overrides[topic.name], report)

    return with_admin(bootstrap, settings, work)


@command.command(
    "alter",
    epilog=examples(
        "triokafka topics alter orders --partitions 24",
    ),
)
@click.argument("topics", metavar="TOPICS")
@admin_options
@click.option("--partitions", type=COUNT, required=True, help="How many there shall be in the end.")
@click.option(
    "--replica-assignment",
    metavar="B:B,B:B,…",
    help="The brokers of all partitions, those that exist included; their entries are passed over.",
)
@click.option("--if-exists", is_flag=True, help="Succeed when nothing matches.")
@click.option("--dry-run", is_flag=True, help="Have the broker check everything, and change nothing.")
@click.option("--config", "configs", multiple=True, hidden=True)
@click.option("--delete-config", "deleted", multiple=True, hidden=True)
def alter(
    topics: str,
    bootstrap: str,
    settings: Mapping[str, Any],
    partitions: int,
    replica_assignment: str | None,
    if_exists: bool,
    dry_run: bool,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
) -> int:
    """Give topics more partitions. There can never be fewer."""
    from triokafka.client.admin import NewPartitions

    if configs or deleted:
        raise click.UsageError("A topic's configuration is changed by: triokafka configs alter --topic NAME.")
    assignment = None if replica_assignment is None else _assignment(replica_assignment)
    if assignment is not None and len(assignment) != partitions:
        raise click.UsageError(f"--replica-assignment must name the brokers of all {partitions} partitions.")

    async def work(admin: AdminClient) -> None:
        found = [listing.name for listing in await _listings(admin, topics)]
        if not found and not if_exists:
            raise _nothing(topics)
        if _GROUP_OFFSETS in found:
            raise click.UsageError(f"{_GROUP_OFFSETS} cannot grow: its number of partitions says where groups are.")
        described = await admin.describe_topics(found)
        wanted = {}
        for name in found:
            now = len(described[name].partitions)
            new = None if assignment is None else assignment[now:]
            wanted[name] = NewPartitions(partitions, assignments=new)
        if found:
            click.echo("Note: a key may belong to another partition once there are more of them.", err=True)
        await admin.create_partitions(wanted, validate_only=dry_run)
        for name in found:
            verb = "could have" if dry_run else "has"
            click.echo(f"Topic {name} {verb} {_plural(partitions, 'partition')}.")

    return with_admin(bootstrap, settings, work)


@command.command(
    "delete",
    epilog=examples(
        "triokafka topics delete orders",
        'triokafka topics delete "test-.*" --dry-run',
    ),
)
@click.argument("topics", required=False, metavar="[TOPICS]")
@admin_options
@click.option("--topic-id", metavar="ID", help="The topic with this id, instead of TOPICS.")
@click.option("--if-exists", is_flag=True, help="Succeed when nothing matches.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask, also when TOPICS is a pattern.")
def delete(
    topics: str | None,
    bootstrap: str,
    settings: Mapping[str, Any],
    topic_id: str | None,
    if_exists: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Delete topics and all their records. A pattern that is no topic's name needs --yes, or an answer."""
    if (topics is None) == (topic_id is None):
        raise click.UsageError("Say which: TOPICS or --topic-id.")
    wanted_id = None if topic_id is None else _parse_id(topic_id)

    async def work(admin: AdminClient) -> None:
        found = await _listings(admin, topics)
        if wanted_id is not None:
            found = [listing for listing in found if listing.topic_id == wanted_id]
        names = [listing.name for listing in found]
        if not names:
            if not if_exists:
                raise _nothing(topics or topic_id or "")
            return
        if dry_run:
            for name in names:
                click.echo(f"Would delete topic {name}.")
            return
        if not yes and topics is not None and not set(topics.split(",")) <= {*names, ""}:
            click.echo(f"{topics} matches: {', '.join(names)}", err=True)
            _confirm("Delete them with all their records?")
        await admin.delete_topics([listing.topic_id if wanted_id is not None else listing.name for listing in found])
        for name in names:
            click.echo(f"Deleted topic {name}.")

    return with_admin(bootstrap, settings, work)


# What the commands share


async def _listings(admin: AdminClient, pattern: str | None, *, exclude_internal: bool = False) -> list[TopicListing]:
    """Topics by name; of a pattern, those that any of its parts names or matches as a whole (TP-02)."""
    found = sorted(await admin.list_topics(include_internal=not exclude_internal), key=lambda one: one.name)
    if pattern is None:
        return found
    parts = [part for part in pattern.split(",") if part]
    literal = {listing.name for listing in found} & set(parts)
    try:
        patterns = [re.compile(part) for part in parts if part not in literal]
    except re.error as error:
        raise click.UsageError(f"{pattern!r} is not a regular expression: {error}.") from None
    return [
        listing for listing in found if listing.name in literal or any(one.fullmatch(listing.name) for one in patterns)
    ]


async def _configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
    from triokafka.client.admin import ConfigResource

    resources = {ConfigResource.topic(name): name for name in names}
    described = await admin.describe_configs(resources)
    return {name: described[resource] for resource, name in resources.items()}


def _overrides(configs: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    from triokafka.client.admin import ConfigSource

    return {entry.name: entry.value for entry in configs.values() if entry.source is ConfigSource.TOPIC}


def _selected(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], report: str | None
) -> Sequence[PartitionDescription]:
    entry = configs.get("min.insync.replicas")
    least = int(entry.value or 1) if entry is not None else 1

    def matches(partition: PartitionDescription) -> bool:
        enough = min(least, len(partition.replicas))
        match report:
            case "under_replicated":
                return len(partition.isr) < len(partition.replicas)
            case "unavailable":
                return partition.leader is None
            case "under_min_isr":
                return len(partition.isr) < enough
            case "at_min_isr":
                return len(partition.isr) == enough
            case "with_overrides":
                return False
            case _:
                return True

    return [partition for partition in topic.partitions if matches(partition)]


def _print(topic: TopicDescription, configs: Mapping[str, ConfigEntry], report: str | None) -> None:
    """As Kafka's own tool prints it: fields separated by tabs."""
    overrides = _overrides(configs)
    if report is None or (report == "with_overrides" and overrides):
        replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
        settings = ",".join(f"{name}={value}" for name, value in sorted(overrides.items()))
        click.echo(
            f"Topic: {topic.name}\tTopicId: {_id_text(topic)}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {replicas}\tConfigs: {settings}"
        )
    for partition in _selected(topic, configs, report):
        leader = "none" if partition.leader is None else partition.leader.node_id
        click.echo(
            f"\tTopic: {topic.name}\tPartition: {partition.partition}\tLeader: {leader}"
            f"\tReplicas: {','.join(map(str, partition.replicas))}\tIsr: {','.join(map(str, partition.isr))}"
        )


def _as_json(topic: TopicDescription, configs: Mapping[str, ConfigEntry], report: str | None) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": _id_text(topic),
        "internal": topic.is_internal,
        "configs": _overrides(configs),
        "partitions": [
            {
                "partition": partition.partition,
                "leader": None if partition.leader is None else partition.leader.node_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": [*partition.replicas],
                "isr": [*partition.isr],
                "offline_replicas": [*partition.offline_replicas],
            }
            for partition in _selected(topic, configs, report)
        ],
    }


def _assignment(text: str) -> list[list[int]]:
    """``0:1,1:2``: partitions separated by commas, their brokers by colons (TP-05)."""
    try:
        found = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--replica-assignment takes broker ids as in 0:1,1:2, not {text!r}.") from None
    if any(not 0 <= broker < 2**31 for brokers in found for broker in brokers):
        raise click.UsageError(f"--replica-assignment: ids of brokers go from 0 to {2**31 - 1:,}.")
    if any(len(set(brokers)) < len(brokers) for brokers in found):
        raise click.UsageError("--replica-assignment: a partition has the same broker twice.")
    if len({len(brokers) for brokers in found}) > 1:
        raise click.UsageError("--replica-assignment: all partitions must have the same number of replicas.")
    return found


def _warn(topic: str, configs: Mapping[str, str]) -> None:
    if "." in topic or "_" in topic:
        click.echo("Note: metrics show '.' and '_' alike; use only one of them in the names of topics.", err=True)
    size = configs.get("max.message.bytes", "")
    if size.isdigit() and int(size) > _LARGE_MESSAGE:
        click.echo(f"Note: with max.message.bytes={size}, check what producers and consumers are set to.", err=True)


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("Nothing was deleted: there is nobody to ask, say --yes.")
    click.confirm(question, abort=True, err=True)


def _nothing(pattern: str) -> Exception:
    from triokafka.errors import UnknownTopicOrPartitionError

    return UnknownTopicOrPartitionError(f"no topic is or matches {pattern!r}")


def _id_text(topic: TopicListing | TopicDescription) -> str:
    """An id as Kafka's tools write it."""
    import base64

    return base64.urlsafe_b64encode(topic.topic_id.bytes).rstrip(b"=").decode()


def _parse_id(text: str) -> UUID:
    import base64
    from uuid import UUID

    try:
        if len(text) == 22:
            return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
        return UUID(text)
    except ValueError:
        raise click.UsageError(f"--topic-id: {text!r} is not a topic's id.") from None


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
