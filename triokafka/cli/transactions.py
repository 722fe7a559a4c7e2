"""``triokafka transactions``: list and describe transactions; find hanging ones, and abort them (KIP-664)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from triokafka.cli.app import describe as describe_error
from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.groups.table import Column, print_table
from triokafka.cli.output import CommandGroup, examples, output_options, print_json
from triokafka.cli.parameter_types import INT32, Integer
from triokafka.cli.unreachable_brokers import raise_without_brokers
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import ProducerDescription

F = TypeVar("F", bound=Callable[..., Any])

_INT64: Final = 2**63 - 1
_MINUTE_MS: Final = 60_000


@click.group("transactions", cls=CommandGroup)
def command() -> None:
    """List and describe transactions, find transactions that no coordinator will end, and abort them.

    A transaction that hangs stops consumers with isolation_level=read_committed: find-hanging finds it, abort ends it.
    """


def _partition_options(*, required: bool) -> Callable[[F], F]:
    def add(function: F) -> F:
        function = click.option(
            "--partition", type=Integer(0, INT32), required=required, help="Number of the partition."
        )(function)
        return click.option("--topic", required=required, shell_complete=topic_names, help="Topic of the partition.")(
            function
        )

    return add


_transactional_id = click.option(
    "--transactional-id",
    "--transactionalId",
    "transactional_ids",
    required=True,
    multiple=True,
    help="The id. Repeat it for several ids.",
)


@command.command(
    "list",
    epilog=examples(
        "triokafka transactions list",
        "triokafka transactions list --state Ongoing --duration-filter 60000",
        "triokafka transactions list --transactional-id-pattern 'billing-.*' --json",
    ),
)
@admin_command
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only in this state, such as Ongoing.")
@click.option("--producer-id", "producer_ids", type=Integer(0, _INT64), multiple=True, help="Only of this producer.")
@click.option("--duration-filter", type=Integer(0, _INT64), metavar="MS", help="Only transactions that run for longer.")
@click.option("--transactional-id-pattern", metavar="REGEX", help="Only ids that this expression matches as a whole.")
@output_options
async def list_transactions(
    admin: AdminClient,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_filter: int | None,
    transactional_id_pattern: str | None,
    output: str,
) -> int:
    """Print all transactional ids with coordinator, producer id and state.

    If a broker fails, the command reports it, prints the ids of the others and exits with status 1.
    """
    found = await admin.list_transactions(
        states=states, producer_ids=producer_ids, min_duration_ms=duration_filter, pattern=transactional_id_pattern
    )
    rows = [
        (one.transactional_id, broker, one.producer_id, one.state)
        for broker in found
        if broker not in found.errors
        for one in found[broker]
    ]
    titles = {
        "transactional_id": "TransactionalId",
        "coordinator": "Coordinator",
        "producer_id": "ProducerId",
        "state": "TransactionState",
    }
    return _print_with_errors(output, titles, sorted(rows), found.errors.values(), "No transactional ids found.")


@command.command("describe", epilog=examples("triokafka transactions describe --transactional-id billing-1"))
@admin_command
@_transactional_id
@output_options
async def describe(admin: AdminClient, transactional_ids: tuple[str, ...], output: str) -> int:
    """Print state, timeout, age and partitions of the transactions of one or several transactional ids."""
    found = await admin.describe_transactions(transactional_ids)
    now = time.time() * 1000
    rows = []
    for transactional_id in transactional_ids:
        if transactional_id in found.errors:
            continue
        one = found[transactional_id]
        partitions = [str(partition) for partition in one.partitions]
        rows.append(
            (
                one.coordinator_id,
                transactional_id,
                one.producer_id,
                one.producer_epoch,
                one.state,
                one.timeout_ms,
                one.start_ms,
                None if one.start_ms is None else max(0, round(now - one.start_ms)),
                partitions if output == "json" else ",".join(partitions),
            )
        )
    titles = {
        "coordinator_id": "CoordinatorId",
        "transactional_id": "TransactionalId",
        "producer_id": "ProducerId",
        "producer_epoch": "ProducerEpoch",
        "state": "TransactionState",
        "timeout_ms": "TransactionTimeoutMs",
        "start_ms": "CurrentTransactionStartTimeMs",
        "duration_ms": "TransactionDurationMs",
        "partitions": "TopicPartitions",
    }
    return _print_with_errors(output, titles, rows, found.errors.values(), "")


@command.command(
    "describe-producers", epilog=examples("triokafka transactions describe-producers --topic orders --partition 0")
)
@admin_command
@_partition_options(required=True)
@click.option("--broker-id", type=Integer(0, INT32), help="Ask this replica instead of the partition's leader.")
@output_options
async def describe_producers(admin: AdminClient, topic: str, partition: int, broker_id: int | None, output: str) -> int:
    """Print the producers that a partition's leader remembers, with the first offset of open transactions."""
    found = await _producers(admin, TopicPartition(topic, partition), broker_id)
    rows = [
        (
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.current_transaction_start_offset if one.current_transaction_start_offset >= 0 else None,
        )
        for one in found
    ]
    titles = {
        "producer_id": "ProducerId",
        "producer_epoch": "ProducerEpoch",
        "coordinator_epoch": "LatestCoordinatorEpoch",
        "last_sequence": "LastSequence",
        "last_timestamp": "LastTimestamp",
        "transaction_start_offset": "CurrentTransactionStartOffset",
    }
    _print(output, titles, rows, f"No producers found in {topic}-{partition}.")
    return 0


@command.command(
    "find-hanging",
    epilog=examples(
        "triokafka transactions find-hanging --broker-id 1",
        "triokafka transactions find-hanging --topic orders --partition 0 --max-transaction-timeout 15",
    ),
)
@admin_command
@click.option("--broker-id", type=Integer(0, INT32), help="Look in all partitions that this broker leads.")
@_partition_options(required=False)
@click.option(
    "--max-transaction-timeout",
    type=Integer(0, INT32),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="The brokers' transaction.max.timeout.ms, in minutes; younger transactions do not hang.",
)
@output_options
async def find_hanging(
    admin: AdminClient,
    broker_id: int | None,
    topic: str | None,
    partition: int | None,
    max_transaction_timeout: int,
    output: str,
) -> int:
    """Print transactions that are open in a partition and that no coordinator will end.

    Without --broker-id and --topic it looks in all partitions of the cluster. Exits with status 1 if it finds one.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")
    if broker_id is not None:
        brokers = sorted(node.node_id for node in (await admin.describe_cluster()).nodes)
        if broker_id not in brokers:
            raise click.ClickException(
                f"broker {broker_id} is not in the cluster, which has the brokers: {', '.join(map(str, brokers))}"
            )
    topics = await admin.describe_topics([one.name for one in await admin.list_topics()] if not topic else [topic])
    asked = [
        TopicPartition(name, number.partition)
        for name in topics
        for number in topics[name].partitions
        if (broker_id is None or (number.leader is not None and number.leader.node_id == broker_id))
        and partition in (None, number.partition)
    ]
    found = await admin.find_hanging_transactions(
        asked, max_transaction_timeout_ms=max_transaction_timeout * _MINUTE_MS
    )
    now = time.time() * 1000
    rows = [
        (
            one.partition.topic,
            one.partition.partition,
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.start_offset,
            one.last_timestamp,
            round((now - one.last_timestamp) / _MINUTE_MS),
            one.transactional_id,
        )
        for one in found
    ]
    titles = {
        "topic": "Topic",
        "partition": "Partition",
        "producer_id": "ProducerId",
        "producer_epoch": "ProducerEpoch",
        "coordinator_epoch": "CoordinatorEpoch",
        "start_offset": "StartOffset",
        "last_timestamp": "LastTimestamp",
        "duration_min": "Duration(min)",
        "transactional_id": "TransactionalId",
    }
    _print(output, titles, rows, "No hanging transactions found.")
    if found and output == "text":
        one = found[0]
        click.echo(
            f"\nTo end one: triokafka transactions abort --topic {one.partition.topic}"
            f" --partition {one.partition.partition} --start-offset {one.start_offset}",
            err=True,
        )
    return 1 if found else 0


@command.command(
    "abort",
    epilog=examples(
        "triokafka transactions abort --topic orders --partition 0 --start-offset 4711",
        "triokafka transactions abort --topic orders --partition 0 --producer-id 7 --producer-epoch 3"
        " --coordinator-epoch 2",
    ),
)
@admin_command
@_partition_options(required=True)
@click.option("--start-offset", type=Integer(0, _INT64), help="First offset of the transaction; see find-hanging.")
@click.option("--producer-id", type=Integer(0, _INT64), help="Its producer, in place of --start-offset.")
@click.option("--producer-epoch", type=Integer(0, INT32), help="The epoch of that producer.")
@click.option("--coordinator-epoch", type=Integer(-1, INT32), help="The epoch of the coordinator that ended its last.")
async def abort(
    admin: AdminClient,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> int:
    """Abort a hanging transaction in one partition. Use force-terminate if a coordinator has the transaction."""
    given = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) == (given == (None, None, None)):
        raise click.UsageError("Give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch.")
    if start_offset is None and None in given:
        raise click.UsageError("--producer-id, --producer-epoch and --coordinator-epoch belong together.")
    where = TopicPartition(topic, partition)
    numbers = given
    if start_offset is not None:
        open_ones = [
            one for one in await _producers(admin, where, None) if one.current_transaction_start_offset == start_offset
        ]
        if not open_ones:
            raise click.ClickException(f"{where} has no open transaction that begins at offset {start_offset}.")
        (one,) = open_ones
        numbers = (one.producer_id, one.producer_epoch, one.coordinator_epoch)
    await admin.abort_transaction(
        where,
        producer_id=numbers[0] or 0,
        producer_epoch=numbers[1] or 0,
        coordinator_epoch=numbers[2] or 0,
    )
    click.echo(f"Aborted the transaction of producer {numbers[0]} (epoch {numbers[1]}) in {where}.")
    return 0


@command.command(
    "force-terminate", epilog=examples("triokafka transactions force-terminate --transactional-id billing-1")
)
@admin_command
@_transactional_id
async def force_terminate(admin: AdminClient, transactional_ids: tuple[str, ...]) -> int:
    """Abort the open transactions of transactional ids through their coordinators, and fence their producers."""
    from triokafka.errors import KafkaError

    failures: list[Exception] = []
    for transactional_id in transactional_ids:
        try:
            await admin.force_terminate_transaction(transactional_id)
        except KafkaError as error:
            failures.append(error)
        else:
            click.echo(f"Terminated the transaction of {transactional_id}; its producer is fenced.")
    return _complain(failures)


command.add_command(
    click.Command(
        "forceTerminateTransaction",  # its name in kafka-transactions
        params=force_terminate.params,
        callback=force_terminate.callback,
        help=force_terminate.help,
        epilog=examples("triokafka transactions forceTerminateTransaction --transactional-id billing-1"),
        hidden=True,
    )
)


async def _producers(
    admin: AdminClient, partition: TopicPartition, broker_id: int | None
) -> tuple[ProducerDescription, ...]:
    found = await admin.describe_producers([partition], node_id=broker_id)
    return found[partition]


def _print(output: str, titles: Mapping[str, str], rows: Sequence[tuple[Any, ...]], nothing: str) -> None:
    """Print rows as JSON with the names of the columns, or under the titles that ``kafka-transactions`` gives them.

    ``nothing`` is the sentence in place of a table without rows.
    """
    if output == "json":
        print_json([dict(zip(titles, row, strict=True)) for row in rows])
    elif not rows:
        click.echo(nothing, err=True)
    else:
        cells = [["None" if value is None else value for value in row] for row in rows]
        print_table([Column(title, name == "partitions") for name, title in titles.items()], cells)


def _print_with_errors(
    output: str,
    titles: Mapping[str, str],
    rows: Sequence[tuple[Any, ...]],
    errors: Collection[Exception],
    nothing: str,
) -> int:
    """Print the rows, and then the errors; if there are only errors, no titles. Return the exit status."""
    if rows or not errors or output == "json":
        _print(output, titles, rows, nothing)
    return _complain(errors)


def _complain(errors: Iterable[Exception]) -> int:
    status = 0
    for error in errors:
        raise_without_brokers(error)
        click.echo(f"triokafka: {describe_error(error)}", err=True)
        status = 1
    return status
