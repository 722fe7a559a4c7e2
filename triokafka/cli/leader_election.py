"""``triokafka leader-election``: elect preferred leaders, or leaders that may lack records, of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.failures import describe, outcomes_of
from triokafka.cli.output import examples, output_options, print_json
from triokafka.cli.parameter_types import PARTITION
from triokafka.cli.partition_files import read_partitions
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient


@click.command(
    "leader-election",
    epilog=examples(
        "triokafka leader-election --election-type preferred --all-topic-partitions",
        "triokafka leader-election --election-type unclean --topic orders --partition 3",
    ),
)
@admin_command
@click.option(
    "--election-type",
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    required=True,
    help="preferred: the first replica, if it is in sync. unclean: any live replica of a partition without a leader; "
    "records may be lost.",
)
@click.option("--topic", metavar="TOPIC", shell_complete=topic_names, help="The topic; needs --partition.")
@click.option("--partition", type=PARTITION, help="The partition of --topic.")
@click.option("--path-to-json-file", "file", metavar="FILE", help='{"partitions": [{"topic": "t", "partition": 0}]}')
@click.option("--all-topic-partitions", "everything", is_flag=True, help="All partitions of all topics.")
@output_options
async def command(
    admin: AdminClient,
    election_type: str,
    topic: str | None,
    partition: int | None,
    file: str | None,
    everything: bool,
    output: str,
) -> int:
    """Elect leaders of partitions. Exit status 1 if one election failed; the others are done."""
    if sum((topic is not None, file is not None, everything)) != 1:
        raise click.UsageError("Give one of --topic with --partition, --path-to-json-file, --all-topic-partitions.")
    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition need each other.")
    asked: list[TopicPartition] | None = None
    if file is not None:
        asked = read_partitions(file, "--path-to-json-file")
    elif topic is not None and partition is not None:
        asked = [TopicPartition(topic, partition)]
    from triokafka.client.admin import ElectionType

    kind = ElectionType[election_type.upper()]
    elected, failed = await _elect(admin, asked, kind)
    already = [one for one in asked or () if one not in elected and one not in failed]
    if output == "json":
        print_json(
            {
                "elected": [str(one) for one in elected],
                "already_elected": [str(one) for one in already],
                "failed": {str(one): describe(error) for one, error in failed.items()},
            }
        )
        return 1 if failed else 0
    if elected:
        names = ", ".join(map(str, elected))
        click.echo(f"Successfully completed leader election ({kind.name}) for partitions {names}")
    if already:
        click.echo(f"Valid replica already elected for partitions {', '.join(map(str, already))}")
    if asked is None and not elected and not failed:
        click.echo("Every partition already has the leader that the election would give it.")
    for one, error in failed.items():
        click.echo(f"Error completing leader election ({kind.name}) for partition: {one}: {describe(error)}", err=True)
    return 1 if failed else 0


async def _elect(
    admin: AdminClient, asked: list[TopicPartition] | None, kind: object
) -> tuple[list[TopicPartition], dict[TopicPartition, Exception]]:
    """Return the partitions with a new leader, and the failed ones with their errors."""
    from triokafka.client.admin import ElectionType

    assert isinstance(kind, ElectionType)
    try:
        return await admin.elect_leaders(asked, election_type=kind), {}
    except Exception as error:
        done, failed = outcomes_of(error)
        return [one for one, was_needed in done.items() if was_needed], failed
