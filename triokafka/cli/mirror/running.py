"""``triokafka mirror run``."""

from __future__ import annotations

import dataclasses
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from triokafka.cli.client_properties import read_properties_text
from triokafka.cli.mirror.sides import client_options, from_kafka_names, side_options
from triokafka.cli.output import examples
from triokafka.cli.parameter_types import INT32, FiniteNumber, Integer, configured
from triokafka.cli.unreachable_brokers import SILENCE

if TYPE_CHECKING:
    from triokafka.mirror import Mirror, MirrorOptions, MirrorStatus


def _shard(ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[int, int]:
    number, separator, count = text.partition("/")
    if not separator or not number.isdigit() or not count.isdigit() or not 1 <= int(number) <= int(count):
        raise click.BadParameter(f"{text!r} is not N/COUNT with N from 1 to COUNT.")
    return int(number) - 1, int(count)


@click.command(
    "run",
    epilog=examples(
        "triokafka mirror run --source west:9092 --target east:9092 --source-alias west --target-alias east",
        "triokafka mirror run --source a:9092 --target b:9092 --topics 'orders.*' --exactly-once --sync-group-offsets",
        "triokafka mirror run --source old:9092 --target new:9092 --identity --once",
        "triokafka mirror run --mm2-config mm2.properties",
    ),
)
@side_options("target")
@side_options("source")
@click.option(
    "--mm2-config", metavar="FILE", help="Read clusters and flows from a properties file of MirrorMaker 2 instead."
)
@click.option("--topics", multiple=True, metavar="REGEX", help="Topics to mirror.  [default: all]")
@click.option("--topics-exclude", multiple=True, metavar="REGEX", help="Topics to leave out.")
@click.option("--groups", multiple=True, metavar="REGEX", help="Groups whose positions are translated. [default: all]")
@click.option("--groups-exclude", multiple=True, metavar="REGEX", help="Groups to leave out.")
@click.option("--identity", is_flag=True, help="Keep the names of topics, without the prefix of the source's name.")
@click.option("--separator", default=".", show_default=True, help="Between the source's name and the topic's.")
@click.option("--exactly-once", is_flag=True, help="Write records and progress in transactions of the target.")
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where to begin in partitions that were not mirrored before.",
)
@click.option("--replication-factor", type=Integer(1, 32_767), help="Of new topics.  [default: that of the target]")
@click.option("--sync-group-offsets", is_flag=True, help="Commit translated positions of groups without members.")
@click.option("--no-sync-topic-configs", is_flag=True, help="Do not copy the configurations of topics.")
@click.option("--sync-topic-acls", is_flag=True, help="Copy ACLs of topics, without permissions to write.")
@click.option("--no-checkpoints", is_flag=True, help="Do not translate positions of groups.")
@click.option("--no-heartbeats", is_flag=True, help="Do not write heartbeats.")
@click.option(
    "--offset-syncs",
    type=click.Choice(["source", "target", "none"]),
    default="source",
    show_default=True,
    help="Cluster with the topic of offset syncs; target or none when the source may not be written to.",
)
@click.option("--shard", default="1/1", show_default=True, callback=_shard, metavar="N/COUNT",
              help="Mirror one part of the partitions, with COUNT processes for all.")  # fmt: skip
@click.option("--commit-interval-ms", type=Integer(1, INT32), help="How often to store progress.  [default: 1000]")
@click.option("--refresh-interval-ms", type=Integer(1, INT32), help="How often to look for topics.  [default: 30000]")
@click.option("--checkpoint-interval-ms", type=Integer(1, INT32), help="How often to translate.  [default: 10000]")
@click.option("--once", is_flag=True, help="End when everything is mirrored that the source has now.")
@click.option(
    "--status-interval", type=FiniteNumber(min=0.1), default=10, show_default=True, metavar="SECONDS",
    help="How often to print progress and lag.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print progress as lines of JSON.")
def run(
    mm2_config: str | None,
    shard: tuple[int, int],
    once: bool,
    status_interval: float,
    as_json: bool,
    **given: Any,
) -> int:
    """Copy topics and positions until Ctrl-C or SIGTERM.

    Records keep partition, key, value, headers and timestamp; new topics and partitions are found. Progress is stored
    in the target: a process that is killed goes on where it was. At least once, unless --exactly-once is given.
    Failures of a cluster are printed, and tried again without limit.
    """
    import trio

    from triokafka.errors import first_leaf
    from triokafka.mirror import Mirror

    flows = _from_mirror_maker(mm2_config, shard) if mm2_config is not None else [_from_options(shard, given)]
    mirrors = [configured(Mirror, flow) for flow in flows]

    stopped_by: list[int] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_signal, nursery.cancel_scope, stopped_by)
            nursery.start_soon(_report_unreachable, flows, mirrors)
            nursery.start_soon(_report, flows, mirrors, status_interval, as_json)
            async with trio.open_nursery() as work:
                for mirror in mirrors:
                    work.start_soon(partial(mirror.run, until_caught_up=once))
            nursery.cancel_scope.cancel()
        await _print_status(flows, mirrors, as_json)

    try:
        trio.run(main)
    except BaseExceptionGroup as group:
        raise first_leaf(group) from None
    if once and stopped_by:
        click.echo("triokafka: stopped before everything was mirrored", err=True)
        return 128 + stopped_by[0]
    return 0


def _from_mirror_maker(path: str, shard: tuple[int, int]) -> list[MirrorOptions]:
    from triokafka.mirror.mirror_maker_config import parse_mirror_maker

    found = configured(parse_mirror_maker, read_properties_text(path), from_kafka_names)
    if found.ignored:
        click.echo(f"triokafka: {path}: without effect here: {', '.join(found.ignored)}", err=True)
    return [dataclasses.replace(flow, shard=shard[0], shards=shard[1]) for flow in found.flows]


def _from_options(shard: tuple[int, int], given: dict[str, Any]) -> MirrorOptions:
    from triokafka.mirror import MirrorOptions

    options: dict[str, Any] = {
        "source": client_options("source", given["source"], given["source_config"]),
        "target": client_options("target", given["target"], given["target_config"]),
        "naming": "identity" if given["identity"] else "prefix",
        "sync_topic_configs": not given["no_sync_topic_configs"],
        "checkpoints": not given["no_checkpoints"],
        "heartbeats": not given["no_heartbeats"],
        "shard": shard[0],
        "shards": shard[1],
    }
    names = ("source_alias", "target_alias", "separator", "start", "offset_syncs")
    flags = ("exactly_once", "sync_group_offsets", "sync_topic_acls")
    options |= {name: given[name] for name in (*names, *flags)}
    # Without a value the default of the option holds.
    lists = ("topics", "topics_exclude", "groups", "groups_exclude")
    numbers = ("replication_factor", "commit_interval_ms", "refresh_interval_ms", "checkpoint_interval_ms")
    options |= {name: given[name] for name in (*lists, *numbers) if given[name]}
    return configured(MirrorOptions, **options)


async def _stop_on_signal(scope: Any, stopped_by: list[int]) -> None:
    import trio

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            stopped_by.append(number)
            scope.cancel()


async def _report_unreachable(flows: list[MirrorOptions], mirrors: list[Mirror]) -> None:
    """Print when a cluster cannot be reached, and why, and when both can be reached again."""
    import trio

    said = [""] * len(mirrors)
    while True:
        await trio.sleep(SILENCE)
        for number, (flow, mirror) in enumerate(zip(flows, mirrors, strict=True)):
            problem = mirror.problem.rstrip(".")
            if bool(problem) == bool(said[number]):
                continue  # the reason changes often: the status has the newest one
            said[number] = problem
            name = f"{flow.source_alias}->{flow.target_alias}"
            state = f"{problem}; trying again" if problem else "both clusters can be reached again"
            click.echo(f"triokafka: {name}: {state}", err=True)


async def _report(flows: list[MirrorOptions], mirrors: list[Mirror], interval: float, as_json: bool) -> None:
    import trio

    while True:
        await trio.sleep(interval)
        await _print_status(flows, mirrors, as_json)


async def _print_status(flows: list[MirrorOptions], mirrors: list[Mirror], as_json: bool) -> None:
    for flow, mirror in zip(flows, mirrors, strict=True):
        found = await mirror.status()
        name = f"{flow.source_alias}->{flow.target_alias}"
        if as_json:
            import json

            click.echo(json.dumps({"flow": name, **dataclasses.asdict(found)}))
        else:
            click.echo(f"{name}: {_sentence(found)}")


def _sentence(found: MirrorStatus) -> str:
    parts = [
        f"{found.partitions} partitions, {found.records} records ({found.bytes / 1e6:.1f} MB) copied",
        "lag unknown" if found.lag < 0 else f"lag {found.lag}",
    ]
    if found.checkpoints:
        parts.append(f"{found.checkpoints} checkpoints")
    if found.lost:
        parts.append(f"{found.lost} offsets were deleted in the source before they were mirrored")
    if found.truncated:
        parts.append(f"{found.truncated} offsets were lost in the source after they were mirrored")
    parts += [f"topic {topic} left out: {reason}" for topic, reason in sorted(found.left_out.items())]
    if found.failure:
        parts.append(f"trying again after: {found.failure}")
    return "; ".join(parts)
