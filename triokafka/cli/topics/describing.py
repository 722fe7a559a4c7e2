"""``triokafka topics describe``: print partitions, replicas, configurations and replication problems of topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.output import examples, output_options, print_json
from triokafka.cli.parameter_types import COUNT
from triokafka.cli.topic_argument import TopicCommand
from triokafka.cli.topics.topic_selection import ChosenTopics, configs_of
from triokafka.structs import format_uuid

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import ConfigEntry, PartitionDescription, TopicDescription

_REPORTS: Final = {
    "under_replicated": "--under-replicated-partitions",
    "unavailable": "--unavailable-partitions",
    "under_min_isr": "--under-min-isr-partitions",
    "at_min_isr": "--at-min-isr-partitions",
    "with_overrides": "--topics-with-overrides",
}


@click.command(
    "describe",
    cls=TopicCommand,
    epilog=examples(
        "triokafka topics describe orders",
        "triokafka topics describe --under-replicated-partitions --json",
    ),
)
@click.argument("topics", required=False, metavar="[TOPICS]", shell_complete=topic_names)
@admin_command
@click.option("--topic-id", metavar="ID", help="Topic id, instead of TOPICS.")
@click.option("--exclude-internal", is_flag=True, help="Omit internal topics.")
@click.option(
    "--under-replicated-partitions", "under_replicated", is_flag=True, help="Only partitions with replicas out of sync."
)
@click.option("--unavailable-partitions", "unavailable", is_flag=True, help="Only partitions without a leader.")
@click.option(
    "--under-min-isr-partitions", "under_min_isr", is_flag=True, help="Only partitions with too few in-sync replicas."
)
@click.option(
    "--at-min-isr-partitions", "at_min_isr", is_flag=True, help="Only partitions at the minimum of in-sync replicas."
)
@click.option(
    "--topics-with-overrides",
    "with_overrides",
    is_flag=True,
    help="Only topics with configurations that are no defaults.",
)
@click.option("--if-exists", is_flag=True, help="Succeed if nothing matches.")
@click.option(
    "--partition-size-limit-per-response", "page_size", type=COUNT, default=2_000, show_default=True, metavar="COUNT",
    help="Most partitions in one response of a broker.",
)  # fmt: skip
@output_options
async def describe(
    admin: AdminClient,
    topics: str | None,
    topic_id: str | None,
    exclude_internal: bool,
    if_exists: bool,
    output: str,
    page_size: int,
    **reports: bool,
) -> None:
    """Print the partitions of topics with leader, replicas and in-sync replicas, and the topics' configurations."""
    chosen = [name for name, wanted in reports.items() if wanted]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(_REPORTS[name] for name in chosen)} exclude each other.")
    if topics is not None and topic_id is not None:
        raise click.UsageError("--topic-id and TOPICS exclude each other.")
    topics_chosen = ChosenTopics.of(topics, topic_id)
    report = chosen[0] if chosen else None
    found = await topics_chosen.resolve(admin, if_exists=if_exists, exclude_internal=exclude_internal)
    described = await admin.describe_topics([listing.name for listing in found])
    overrides = await configs_of(admin, [listing.name for listing in found])
    eligible = await _eligible_leaders(admin, [listing.name for listing in found], page_size)
    shown = [_with(described[listing.name], eligible) for listing in found]
    if output == "json":
        print_json([_as_json(topic, overrides[topic.name], report) for topic in shown])
        return
    for topic in shown:
        _print(topic, overrides[topic.name], report)


async def _eligible_leaders(
    admin: AdminClient, names: Sequence[str], page_size: int
) -> dict[tuple[str, int], PartitionDescription]:
    """Return partitions with their eligible leader replicas (KIP-966); nothing from brokers before 3.7."""
    from triokafka.errors import UnsupportedVersionError

    found: dict[tuple[str, int], PartitionDescription] = {}
    cursor: tuple[str, int] | None = None
    while names:
        try:
            page = await admin.describe_topic_partitions(names, partition_limit=page_size, cursor=cursor)
        except UnsupportedVersionError:
            return {}
        for name, topic in page.topics.items():
            found.update({(name, one.partition): one for one in topic.partitions})
        cursor = page.cursor
        if cursor is None:
            break
    return found


def _with(topic: TopicDescription, eligible: Mapping[tuple[str, int], PartitionDescription]) -> TopicDescription:
    """Return the topic with the eligible leader replicas of its partitions."""
    partitions = []
    for one in topic.partitions:
        known = eligible.get((topic.name, one.partition), one)
        partitions.append(
            replace(
                one,
                eligible_leader_replicas=known.eligible_leader_replicas,
                last_known_elr=known.last_known_elr,
            )
        )
    return replace(topic, partitions=tuple(partitions))


def _overrides(configs: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """Return the values that are not defaults of the software: those of the topic and of the brokers."""
    from triokafka.client.admin import ConfigSource

    return {entry.name: entry.value for entry in configs.values() if entry.source is not ConfigSource.DEFAULT}


def _selected(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], report: str | None
) -> Sequence[PartitionDescription]:
    entry = configs.get("min.insync.replicas")
    least = int(entry.value or 1) if entry is not None else 1

    def matches(partition: PartitionDescription) -> bool:
        match report:
            case "under_replicated":
                return len(partition.isr) < len(partition.replicas)
            case "unavailable":
                return partition.leader is None
            case "under_min_isr":
                return len(partition.isr) < least
            case "at_min_isr":
                return len(partition.isr) == least
            case "with_overrides":
                return False
            case _:
                return True

    return [partition for partition in topic.partitions if matches(partition)]


def _print(topic: TopicDescription, configs: Mapping[str, ConfigEntry], report: str | None) -> None:
    """Print in the format of Kafka's tool: fields separated by tabs."""
    overrides = _overrides(configs)
    if report is None or (report == "with_overrides" and overrides):
        replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
        settings = ",".join(f"{name}={value}" for name, value in sorted(overrides.items()))
        click.echo(
            f"Topic: {topic.name}\tTopicId: {format_uuid(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {replicas}\tConfigs: {settings}"
        )
    for partition in _selected(topic, configs, report):
        leader = "none" if partition.leader is None else partition.leader.node_id
        click.echo(
            f"\tTopic: {topic.name}\tPartition: {partition.partition}\tLeader: {leader}"
            f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}"
            f"\tElr: {_ids(partition.eligible_leader_replicas)}\tLastKnownElr: {_ids(partition.last_known_elr)}"
        )


def _ids(replicas: Sequence[int] | None) -> str:
    return "N/A" if replicas is None else ",".join(map(str, replicas))


def _list(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else [*replicas]


def _as_json(topic: TopicDescription, configs: Mapping[str, ConfigEntry], report: str | None) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": format_uuid(topic.topic_id),
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
                "eligible_leader_replicas": _list(partition.eligible_leader_replicas),
                "last_known_elr": _list(partition.last_known_elr),
            }
            for partition in _selected(topic, configs, report)
        ],
    }
