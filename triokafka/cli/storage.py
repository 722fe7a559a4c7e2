"""``triokafka storage``: format data directories for a cluster, show them, and make ids."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from triokafka.cli.cluster.layout import new_id
from triokafka.cli.output import CommandGroup, examples
from triokafka.cli.parameter_types import configured, text_of_file

if TYPE_CHECKING:
    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.broker_stub.raft.voter_set import Voter
    from triokafka.protocol.message import Struct
    from triokafka.protocol.stored.cluster_metadata import FeatureLevelRecord, UserScramCredentialRecord


@click.group("storage", cls=CommandGroup)
def command() -> None:
    """Format the data directories of a node for a cluster, show them, and make ids."""


@command.command("random-uuid", epilog=examples("triokafka storage random-uuid"))
def random_uuid() -> None:
    """Print a new id for a cluster or a directory."""
    click.echo(new_id())


@command.command(
    "format",
    epilog=examples(
        "triokafka storage format -t MkU3OEVBNTcwNTJENDM2Qk -c server.properties",
        "triokafka storage format -t MkU3OEVBNTcwNTJENDM2Qk -c server.properties --standalone",
        "triokafka storage format -t MkU3OEVBNTcwNTJENDM2Qk -c server.properties --standalone "
        "--add-scram 'SCRAM-SHA-256=[name=admin,password=s3cret]'",
    ),
)
@click.option("--cluster-id", "-t", required=True, metavar="ID", help="The cluster that the node joins.")
@click.option("--config", "-c", "config_file", required=True, metavar="FILE", help="The node's server.properties.")
@click.option("--standalone", "-s", is_flag=True, help="Begin a dynamic quorum with this node as its only voter.")
@click.option(
    "--initial-controllers",
    "-I",
    metavar="ID@HOST:PORT:DIRECTORY,...",
    help="Begin a dynamic quorum with these voters; give all nodes the same list.",
)
@click.option("--no-initial-controllers", "-N", is_flag=True, help="Join a dynamic quorum as an observer.")
@click.option(
    "--ignore-formatted",
    "-g",
    is_flag=True,
    help="Leave directories of the same node and cluster that are formatted already.",
)
@click.option("--feature", "-f", "features", multiple=True, metavar="NAME=LEVEL", help="First level of a feature.")
@click.option(
    "--release-version", "-r", metavar="VERSION", help="Begin with the feature levels of a Kafka release, such as 4.0."
)
@click.option(
    "--add-scram",
    "-S",
    "users",
    multiple=True,
    metavar="MECHANISM=[name=NAME,password=PASSWORD]",
    help="Begin with a SCRAM user. Others on this machine can see a command line.",
)
def format_directories(
    cluster_id: str,
    config_file: str,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    ignore_formatted: bool,
    features: tuple[str, ...],
    release_version: str | None,
    users: tuple[str, ...],
) -> None:
    """Write the ids of the cluster, the node and the directories into the node's data directories.

    With controller.quorum.voters the voters are fixed. Otherwise the quorum is dynamic, and the first controllers need
    --standalone or --initial-controllers.
    """
    config = _config(config_file)
    chosen = sum((standalone, initial_controllers is not None, no_initial_controllers))
    if chosen > 1:
        raise click.UsageError("--standalone, --initial-controllers and --no-initial-controllers exclude each other.")
    if (standalone or initial_controllers is not None) and config.quorum_voters:
        raise click.UsageError("controller.quorum.voters fixes the voters: remove it, or do without that option.")
    if not chosen and not config.quorum_voters and config.is_controller:
        raise click.UsageError(
            "controller.quorum.voters is not set: give --standalone, --initial-controllers or --no-initial-controllers."
        )
    if standalone and not config.is_controller:
        raise click.UsageError("--standalone: the node is a broker only (process.roles).")
    dynamic = chosen > 0 and not config.quorum_voters
    records: list[Struct] = [*_first_records(features, release_version, dynamic=dynamic)]
    records += _users(users, records)
    missing = _not_formatted(config)
    if len(missing) < len(_directories(config)) and not ignore_formatted:
        raise click.ClickException("a data directory is formatted already; use --ignore-formatted to leave it.")
    voters = _parse_controllers(initial_controllers, config) if initial_controllers is not None else None
    _write(config, cluster_id, voters, missing, standalone=standalone, records=records)
    if not missing:
        click.echo("All of the log directories are already formatted.")


@command.command("info", epilog=examples("triokafka storage info -c server.properties"))
@click.option("--config", "-c", "config_file", required=True, metavar="FILE", help="The node's server.properties.")
@click.pass_context
def info(ctx: click.Context, config_file: str) -> None:
    """Print the data directories of a node and their ids. Exit with 1 if a directory is not formatted."""
    from triokafka.broker_stub.config import parse_properties
    from triokafka.world.os_storage import OsStorage

    config, storage = _config(config_file), OsStorage()
    missing = _not_formatted(config)
    for directory in _directories(config):
        if directory in missing:
            continue
        path = f"{directory}/meta.properties"
        click.echo(f"{directory}:")
        for name, value in parse_properties(storage.read_file(path).decode("utf-8"), source=path).items():
            click.echo(f"  {name}={value}")
    for directory in missing:
        click.echo(f"{directory} is not formatted.")
    if missing:
        ctx.exit(1)


def _config(config_file: str) -> BrokerConfig:
    from triokafka.broker_stub.config import BrokerConfig, parse_properties

    properties = configured(parse_properties, text_of_file(config_file), source=config_file)
    return configured(BrokerConfig.from_properties, properties)


def _directories(config: BrokerConfig) -> list[str]:
    return list(dict.fromkeys((*config.data_directories, config.metadata_directory)))


def _not_formatted(config: BrokerConfig) -> list[str]:
    from triokafka.world.os_storage import OsStorage

    storage = OsStorage()
    return [directory for directory in _directories(config) if not storage.exists(f"{directory}/meta.properties")]


def _id_of_text(text: str) -> uuid.UUID:
    from triokafka.structs import parse_uuid

    try:
        return parse_uuid(text)
    except ValueError:
        raise click.UsageError(f"--initial-controllers: {text!r} is not a directory id.") from None


def _first_records(
    features: tuple[str, ...], release_version: str | None, *, dynamic: bool
) -> list[FeatureLevelRecord]:
    """Return the records of the first levels of features, in Kafka's order. With ``dynamic`` the quorum's voters are in
    its log, which is ``kraft.version`` 1; that feature has no record.
    """
    from triokafka.broker_stub.metadata.features import INITIAL_LEVELS, KRAFT_VERSION, METADATA_VERSION, SUPPORTED
    from triokafka.cli.features import levels_of_metadata, levels_of_release
    from triokafka.protocol.stored.cluster_metadata import FeatureLevelRecord

    chosen: dict[str, int] = {}
    for text in features:
        name, equals, level = text.partition("=")
        low, high = SUPPORTED.get(name, (0, -1))
        if not equals or not level.isdigit() or not low <= int(level) <= high:
            raise click.UsageError(
                f"--feature {text!r} is not NAME=LEVEL with one of {', '.join(SUPPORTED)} and a supported level."
            )
        chosen[name] = int(level)
    if release_version is not None:
        if METADATA_VERSION in chosen:
            raise click.UsageError(f"--release-version and --feature {METADATA_VERSION} exclude each other.")
        levels = levels_of_release("--release-version", release_version)
        low, high = SUPPORTED[METADATA_VERSION]
        if not low <= levels[METADATA_VERSION] <= high:
            raise click.UsageError(
                f"--release-version {release_version}: {METADATA_VERSION} {levels[METADATA_VERSION]} is not supported, "
                f"only {low} to {high} (Kafka 3.3 to 4.3)."
            )
    elif METADATA_VERSION in chosen:
        levels = levels_of_metadata(chosen[METADATA_VERSION])
    else:
        levels = dict(INITIAL_LEVELS)
    levels |= chosen
    quorum_level = levels.pop(KRAFT_VERSION, int(dynamic))
    if quorum_level != dynamic:
        raise click.UsageError(
            f"--feature {KRAFT_VERSION}={quorum_level}: with "
            + (
                "--standalone, --initial-controllers or --no-initial-controllers it is 1."
                if dynamic
                else "controller.quorum.voters it is 0."
            )
        )
    _check_dependencies(levels)
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in names if levels[name]]


def _check_dependencies(levels: Mapping[str, int]) -> None:
    from triokafka.broker_stub.metadata.features import DEPENDENCIES

    for name, level in levels.items():
        for needed, lowest in DEPENDENCIES.get((name, level), {}).items():
            if levels.get(needed, 0) < lowest:
                raise click.UsageError(
                    f"{name} {level} needs {needed} {lowest} or higher, not {levels.get(needed, 0)}: choose a newer "
                    f"release, or --feature {name}=0."
                )


def _users(arguments: tuple[str, ...], records: Sequence[Struct]) -> list[UserScramCredentialRecord]:
    from triokafka.broker_stub.metadata.features import METADATA_VERSION
    from triokafka.cli.add_scram import MIN_METADATA_VERSION, scram_record
    from triokafka.world.system import RealWorld

    if arguments and _level(records) < MIN_METADATA_VERSION:
        raise click.UsageError(f"--add-scram needs {METADATA_VERSION} {MIN_METADATA_VERSION} (Kafka 3.5) or higher.")
    return [scram_record(text, RealWorld().random_bytes) for text in arguments]


def _level(records: Sequence[Struct]) -> int:
    from triokafka.broker_stub.metadata.features import METADATA_VERSION
    from triokafka.protocol.stored.cluster_metadata import FeatureLevelRecord

    levels = (record for record in records if isinstance(record, FeatureLevelRecord))
    return next(record.feature_level for record in levels if record.name == METADATA_VERSION)


def _parse_controllers(text: str, config: BrokerConfig) -> list[Voter]:
    from triokafka.broker_stub.raft.replica_key import ReplicaKey
    from triokafka.broker_stub.raft.voter_set import Voter, VoterEndpoint

    listener = config.controller_listener_names[0].upper()
    voters: list[Voter] = []
    for entry in text.split(","):
        number, at, rest = entry.strip().partition("@")
        address, colon, directory = rest.rpartition(":")
        host, colon_too, port = address.rpartition(":")
        if not (at and colon and colon_too and number.isdigit() and port.isdigit()):
            raise click.UsageError(f"--initial-controllers: {entry!r} is not ID@HOST:PORT:DIRECTORY.")
        if not host or not 0 < int(port) < 65536:
            raise click.UsageError(f"--initial-controllers: {entry!r} needs a host, and a port from 1 to 65535.")
        if any(voter.node_id == int(number) for voter in voters):
            raise click.UsageError(f"--initial-controllers names the node {number} twice.")
        key = ReplicaKey(int(number), _id_of_text(directory))
        voters.append(Voter(key, (VoterEndpoint(listener, host.strip("[]"), int(port)),), 0, 1))
    return voters


def _write(
    config: BrokerConfig,
    cluster_id: str,
    voters: list[Voter] | None,
    missing: Sequence[str],
    *,
    standalone: bool,
    records: Sequence[Struct],
) -> None:
    """Write ``meta.properties`` into the ``missing`` directories, and the first records and the first voters into that
    of the metadata log if it is one of them. The other directories must belong to the same node and cluster.
    """
    from triokafka.broker_stub.meta_properties import open_directories
    from triokafka.broker_stub.metadata.features import METADATA_VERSION
    from triokafka.broker_stub.raft_options import controller_endpoints, raft_config
    from triokafka.broker_stub.storage_format import BOOTSTRAP_FILE, encode_bootstrap, write_format_snapshot
    from triokafka.world.os_storage import OsStorage

    storage, directories, metadata = OsStorage(), _directories(config), config.metadata_directory
    given = {voter.node_id: voter.key.directory_id for voter in voters or ()}
    own = given.get(config.node_id)

    # The directory of the metadata log first: it gets the id that the list of voters has.
    ordered = [metadata, *(path for path in directories if path != metadata)]
    ids = [] if own is None else [own]
    identity = configured(
        open_directories,
        storage,
        ordered,
        config.node_id,
        new_id=lambda: ids.pop() if ids else uuid.uuid4(),
        cluster_id=cluster_id,
        needed=metadata,
    )
    level = _level(records)
    for directory in missing:
        click.echo(f"Formatting data directory {directory} with {METADATA_VERSION} {level}.")
    if metadata not in missing:
        return
    now_ms = int(time.time() * 1000)
    bootstrap = encode_bootstrap(records, metadata_version=level, now_ms=now_ms)
    umask = os.umask(0o077)  # the file may have credentials
    try:
        storage.replace_file(f"{metadata}/{BOOTSTRAP_FILE}", bootstrap)
    finally:
        os.umask(umask)
    if standalone:
        quorum = raft_config(config, cluster_id, identity.directory_ids[metadata], controller_endpoints(config))
        voters = [quorum.voter]
    if voters is not None:
        write_format_snapshot(storage, metadata, voters, now_ms=now_ms)
