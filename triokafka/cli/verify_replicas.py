"""``triokafka verify-replicas``: compare the replicas of partitions by checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.failures import describe
from triokafka.cli.output import examples, output_options, print_json
from triokafka.cli.parameter_types import Integer
from triokafka.cli.partition_filters import NOTHING_MATCHES, of_patterns, of_topic
from triokafka.cli.progress import progress, shows_progress
from triokafka.cli.replica_comparison import Difference, ReplicaComparison, ReplicaEntries
from triokafka.cli.topics.topic_selection import configs_of
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient

_POLL_SECONDS = 0.1


@click.command(
    "verify-replicas",
    epilog=examples(
        "triokafka verify-replicas",
        'triokafka verify-replicas --topics-include "orders.*" --json',
        "triokafka verify-replicas --topic-partitions orders:0-3",
    ),
)
@admin_command
@click.option(
    "--topics-include", "--topic", "topic", metavar="TOPICS", shell_complete=topic_names,
    help="Names or regular expressions.  [default: all topics]",
)  # fmt: skip
@click.option("--topic-partitions", metavar="T:1,T:0-3,…", help="Partitions by topic, instead of --topics-include.")
@click.option(
    "--fetch-size", type=Integer(min=1), default=1 << 20, show_default=True, metavar="BYTES",
    help="Bytes to read of a replica at a time.",
)  # fmt: skip
@output_options
async def command(
    admin: AdminClient, topic: str | None, topic_partitions: str | None, fetch_size: int, output: str
) -> int:
    """Compare the logs of all replicas of partitions, and print the first difference of each partition.

    It reads every replica from its own broker, from the partition's first offset to its present high watermark, and
    compares batches by their checksums, which it verifies. Compacted topics are compared record by record, because each
    replica compacts for itself. The exit status is 1 if a replica differs, or could not be read to the end.
    """
    if topic_partitions is not None and topic is not None:
        raise click.UsageError("--topic-partitions cannot be used with --topics-include.")
    wanted = of_topic(topic, None) if topic_partitions is None else of_patterns(topic_partitions)
    names = wanted.topics(one.name for one in await admin.list_topics(include_internal=True))
    described = await admin.describe_topics(names)
    compacted = {
        name for name, configs in (await configs_of(admin, names)).items()
        if "compact" in str(getattr(configs.get("cleanup.policy"), "value", ""))
    }  # fmt: skip
    found = [(partition, one.replicas) for partition, one in wanted.select(described)]
    if not found:
        click.echo(NOTHING_MATCHES, err=True)
        return 1
    results: list[_Result] = []
    with progress("comparing", len(found), shown=shows_progress(beside_output=True)) as advance:
        for partition, replicas in sorted(found):
            results.append(
                await _compare(admin, partition, replicas, fetch_size, by_record=partition.topic in compacted)
            )
            advance(1)
    if output == "json":
        print_json([result.as_json() for result in results])
    else:
        _print(results)
    return 1 if any(not result.is_good for result in results) else 0


class _Result(NamedTuple):
    """The outcome of one partition: a difference, a problem that ended the comparison, or neither."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    start: int
    end: int
    compared: int
    checksum: int
    difference: Difference | None = None
    problem: str = ""

    @property
    def is_good(self) -> bool:
        return self.difference is None and not self.problem

    def as_json(self) -> dict[str, Any]:
        difference = self.difference
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "replicas": [*self.replicas],
            "start": self.start,
            "end": self.end,
            "compared": self.compared,
            "checksum": f"{self.checksum:08x}",
            "problem": self.problem or None,
            "difference": None
            if difference is None
            else {
                "offset": difference.offset,
                "replicas": {
                    str(broker): None if entry is None else {**entry._asdict(), "checksum": f"{entry.checksum:08x}"}
                    for broker, entry in difference.entries.items()
                },
            },
        }


def _print(results: list[_Result]) -> None:
    for result in results:
        replicas = ",".join(map(str, result.replicas))
        where = f"{result.partition}: replicas {replicas}, offsets {result.start} to {result.end}"
        if result.difference is not None:
            click.echo(f"{where}: DIFFERENT at offset {result.difference.offset}")
            for broker, entry in result.difference.entries.items():
                click.echo(f"\tbroker {broker}: {'nothing up to the end' if entry is None else entry}")
        elif result.problem:
            click.echo(f"{where}: NOT COMPARED to the end: {result.problem}")
        else:
            click.echo(f"{where}: equal, checksum {result.checksum:08x}")
    bad = sum(result.difference is not None for result in results)
    open_ = sum(bool(result.problem) for result in results)
    click.echo(f"{len(results)} partitions: {bad} different, {open_} not compared to the end", err=True)


async def _compare(
    admin: AdminClient, partition: TopicPartition, replicas: tuple[int, ...], fetch_size: int, *, by_record: bool
) -> _Result:
    import trio

    from triokafka.errors import KafkaError

    start = end = -1
    comparison = ReplicaComparison({}, by_record=by_record)
    try:
        start = (await admin.list_offsets({partition: "earliest"}))[partition].offset
        end = (await admin.list_offsets({partition: "latest"}))[partition].offset
        entries = {broker: ReplicaEntries(start, end, by_record=by_record) for broker in replicas}
        comparison = ReplicaComparison(entries, by_record=by_record)
        patience = trio.current_time() + admin.options.default_api_timeout_ms / 1000
        while True:
            for broker in comparison.missing():
                at = entries[broker].next_offset
                while not entries[broker].feed(await _read(admin, broker, partition, at, fetch_size)):
                    # A follower learns the high watermark with its next fetch.
                    if trio.current_time() > patience:
                        problem = f"broker {broker} has no records from offset {at} on"
                        return _result(partition, replicas, start, end, comparison, problem=problem)
                    await trio.sleep(_POLL_SECONDS)
                patience = trio.current_time() + admin.options.default_api_timeout_ms / 1000
            outcome = comparison.step()
            if isinstance(outcome, Difference):
                return _result(partition, replicas, start, end, comparison, difference=outcome)
            if not outcome and not comparison.missing():
                return _result(partition, replicas, start, end, comparison)
    except KafkaError as error:
        return _result(partition, replicas, start, end, comparison, problem=describe(error))


async def _read(admin: AdminClient, broker: int, partition: TopicPartition, offset: int, fetch_size: int) -> Any:
    return (await admin.read_replica(broker, partition, offset, max_bytes=fetch_size)).records


def _result(
    partition: TopicPartition,
    replicas: tuple[int, ...],
    start: int,
    end: int,
    comparison: ReplicaComparison,
    *,
    difference: Difference | None = None,
    problem: str = "",
) -> _Result:
    return _Result(partition, replicas, start, end, comparison.compared, comparison.checksum, difference, problem)
