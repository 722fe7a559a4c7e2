"""``triokafka features``: show, raise and lower the levels of the cluster's features (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.client_properties import pairs
from triokafka.cli.connection import admin_command, controller_option
from triokafka.cli.failures import describe as described
from triokafka.cli.output import CommandGroup, examples, output_options, print_json
from triokafka.cli.parameter_types import Integer
from triokafka.cli.unreachable_brokers import raise_without_brokers

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import FeatureRange, UpgradeType

_METADATA_VERSION: Final = "metadata.version"
_KRAFT_VERSION: Final = "kraft.version"

_METADATA_NAMES: Final[Mapping[int, str]] = {
    1: "3.0-IV1", 2: "3.1-IV0", 3: "3.2-IV0", 4: "3.3-IV0", 5: "3.3-IV1", 6: "3.3-IV2", 7: "3.3-IV3",
    8: "3.4-IV0", 9: "3.5-IV0", 10: "3.5-IV1", 11: "3.5-IV2", 12: "3.6-IV0", 13: "3.6-IV1", 14: "3.6-IV2",
    15: "3.7-IV0", 16: "3.7-IV1", 17: "3.7-IV2", 18: "3.7-IV3", 19: "3.7-IV4", 20: "3.8-IV0", 21: "3.9-IV0",
    22: "4.0-IV0", 23: "4.0-IV1", 24: "4.0-IV2", 25: "4.0-IV3", 26: "4.1-IV0", 27: "4.1-IV1", 28: "4.2-IV0",
    29: "4.2-IV1", 30: "4.3-IV0", 31: "4.4-IV0",
}  # fmt: skip
"""The names of the levels of ``metadata.version``."""

_RELEASE_LEVELS: Final[tuple[tuple[str, int, int], ...]] = (
    ("transaction.version", 2, 24),
    ("group.version", 1, 22),
    ("eligible.leader.replicas.version", 1, 26),
    ("share.version", 1, 28),
    ("streams.version", 1, 29),
    (_KRAFT_VERSION, 1, 21),
)
"""Features of a release: the level, and the lowest ``metadata.version`` with which a release has it."""


_HIGHEST: Final = {_METADATA_VERSION: max(_METADATA_NAMES), **{name: level for name, level, _ in _RELEASE_LEVELS}}
"""The highest known level of each feature."""
_DEPENDENCIES: Final = {("eligible.leader.replicas.version", 1): {_METADATA_VERSION: 23}}
"""The levels of other features that the controller demands for a level."""


@click.group("features", cls=CommandGroup)
def command() -> None:
    """Show, upgrade, downgrade and disable the features of the cluster."""


@command.command("describe", epilog=examples("triokafka features describe", "triokafka features describe --json"))
@controller_option
@admin_command
@click.option("--node-id", type=Integer(min=0), metavar="ID", help="The broker or controller to ask.  [default: any]")
@output_options
async def describe(admin: AdminClient, node_id: int | None, output: str) -> None:
    """Print the supported levels of every feature, and the level of the cluster."""
    found = await admin.describe_features(node_id=node_id)
    names = sorted({*found.supported, *found.finalized})
    if output == "json":
        print_json({name: _as_json(found.supported.get(name), found.finalized.get(name)) for name in names})
        return
    epoch = "-" if found.epoch is None else found.epoch
    for name in names:
        supported, finalized = found.supported.get(name), found.finalized.get(name)
        low, high = (0, 0) if supported is None else (supported.min_version, supported.max_version)
        level = 0 if finalized is None else finalized.max_version
        click.echo(
            f"Feature: {name}\tSupportedMinVersion: {_level(name, low)}\tSupportedMaxVersion: {_level(name, high)}"
            f"\tFinalizedVersionLevel: {_level(name, level)}\tEpoch: {epoch}"
        )


def _as_json(supported: FeatureRange | None, finalized: FeatureRange | None) -> dict[str, Any]:
    return {
        "supported": None if supported is None else [supported.min_version, supported.max_version],
        "finalized": 0 if finalized is None else finalized.max_version,
    }


def _level(name: str, level: int) -> str:
    return _METADATA_NAMES.get(level, str(level)) if name == _METADATA_VERSION else str(level)


def _update_options(*, with_level: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that name features."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        options = [
            click.option("--dry-run", is_flag=True, help="Validate on the controller without changing anything."),
            click.option(
                "--feature", "features", multiple=True, metavar="NAME=LEVEL" if with_level else "NAME",
                help="A feature and its new level." if with_level else "A feature to disable.",
            ),
        ]  # fmt: skip
        if with_level:
            options += [
                click.option("--metadata", metavar="VERSION", help="The new metadata.version, such as 4.0 or 4.0-IV3."),
                click.option(
                    "--release-version", metavar="VERSION", help="All features at the levels of a Kafka release."
                ),
            ]
        for option in options:
            function = option(function)
        return controller_option(admin_command(function))

    return decorate


@command.command(
    "upgrade",
    epilog=examples(
        "triokafka features upgrade --release-version 4.0",
        "triokafka features upgrade --feature group.version=1 --dry-run",
    ),
)
@_update_options(with_level=True)
async def upgrade(admin: AdminClient, **options: Any) -> int:
    """Raise the levels of features. All brokers and controllers must support the new level."""
    from triokafka.client.admin import UpgradeType

    return await _update(admin, _wanted(**_levels(options)), UpgradeType.UPGRADE, "upgraded", **_how(options))


@command.command("downgrade", epilog=examples("triokafka features downgrade --feature transaction.version=1"))
@_update_options(with_level=True)
@click.option("--unsafe", is_flag=True, help="Lower the level although metadata may be lost.")
async def downgrade(admin: AdminClient, unsafe: bool, **options: Any) -> int:
    """Lower the levels of features. A level at which metadata would be lost is refused."""
    from triokafka.client.admin import UpgradeType

    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    return await _update(admin, _wanted(**_levels(options)), kind, "downgraded", **_how(options))


@command.command("disable", epilog=examples("triokafka features disable --feature group.version"))
@_update_options(with_level=False)
@click.option("--unsafe", is_flag=True, help="Disable it although metadata may be lost.")
async def disable(admin: AdminClient, unsafe: bool, features: tuple[str, ...], dry_run: bool) -> int:
    """Disable features: set their levels to 0."""
    from triokafka.client.admin import UpgradeType

    if not features:
        raise click.UsageError("Give at least one --feature.")
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    return await _update(admin, dict.fromkeys(features, 0), kind, "disabled", dry_run=dry_run)


def _unused_connection(function: Callable[..., Any]) -> Callable[..., Any]:
    """Accept the options of a connection, which ``kafka-features`` demands and this command does not need."""
    for names in (("-b", "--bootstrap-server"), ("--command-config",)):
        function = click.option(*names, expose_value=False, hidden=True)(function)
    return function


@command.command("version-mapping", epilog=examples("triokafka features version-mapping --release-version 4.0"))
@_unused_connection
@click.option("--release-version", metavar="VERSION", help="The release, such as 4.0.  [default: the newest known]")
def version_mapping(release_version: str | None) -> int:
    """Print the levels of all features in a Kafka release."""
    newest = max(_METADATA_NAMES)
    level = newest - 1 if release_version is None else _metadata_level("--release-version", release_version)
    click.echo(f"{_METADATA_VERSION}={level} ({release_version or _METADATA_NAMES[level]})")
    of_release = _release(level)
    for name in sorted(set(_HIGHEST) - {_METADATA_VERSION}):
        click.echo(f"{name}={of_release.get(name, 0)}")
    return 0


@command.command(
    "feature-dependencies",
    epilog=examples("triokafka features feature-dependencies --feature eligible.leader.replicas.version=1"),
)
@_unused_connection
@click.option(
    "--feature", "features", multiple=True, required=True, metavar="NAME=LEVEL", help="A feature and a level."
)
def feature_dependencies(features: tuple[str, ...]) -> int:
    """Print the levels of other features that a level of a feature needs."""
    for name, text in pairs("--feature", features).items():
        known = range(1, max(_METADATA_NAMES) + 1) if name == _METADATA_VERSION else range(_HIGHEST.get(name, -1) + 1)
        if not known:
            raise click.UsageError(f"--feature: there is no feature {name!r}; known are {', '.join(_HIGHEST)}.")
        if not text.strip().isdigit() or int(text) not in known:
            raise click.UsageError(f"--feature: {name} has the levels {known[0]} to {known[-1]}, not {text!r}.")
        needed = _DEPENDENCIES.get((name, int(text)), {})
        click.echo(f"{name}={_with_name(name, int(text))} {'requires:' if needed else 'has no dependencies.'}")
        for other, level in needed.items():
            click.echo(f"    {other}={_with_name(other, level)}")
    return 0


def _with_name(name: str, level: int) -> str:
    return f"{level} ({_METADATA_NAMES[level]})" if name == _METADATA_VERSION else str(level)


def _levels(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("features", "metadata", "release_version")}


def _how(options: Mapping[str, Any]) -> dict[str, bool]:
    return {"dry_run": options["dry_run"], "of_release": options["release_version"] is not None}


def _wanted(features: tuple[str, ...], metadata: str | None, release_version: str | None) -> dict[str, int]:
    """Return the new levels from the options."""
    if release_version is not None:
        if features or metadata is not None:
            raise click.UsageError("--release-version and --feature or --metadata exclude each other.")
        # The quorum's own level changes separately, once its voters are ready (KIP-853).
        return levels_of_release("--release-version", release_version)
    wanted: dict[str, int] = {}
    for name, level in pairs("--feature", features).items():
        if not level.strip().isdigit():
            raise click.UsageError(f"--feature takes NAME=LEVEL with a number, not {name}={level}.")
        wanted[name] = int(level)
    if metadata is not None:
        if _METADATA_VERSION in wanted:
            raise click.UsageError(f"--metadata and --feature {_METADATA_VERSION} exclude each other.")
        wanted[_METADATA_VERSION] = _metadata_level("--metadata", metadata)
    if not wanted:
        raise click.UsageError("Give at least one of --feature, --metadata, --release-version.")
    return wanted


def _metadata_level(option: str, text: str) -> int:
    """Return the level with a name such as 4.0-IV3, or the newest one of a release such as 4.0."""
    release = ".".join(text.split(".")[:2])  # 4.0.1 has the levels of 4.0
    for level, name in sorted(_METADATA_NAMES.items(), reverse=True):
        if text == name or release == name.partition("-")[0]:
            return level
    newest = _METADATA_NAMES[max(_METADATA_NAMES)]
    raise click.UsageError(f"{option}: there is no version {text!r}; known are 3.0-IV1 to {newest}.")


def levels_of_release(option: str, text: str) -> dict[str, int]:
    """Return the levels of all features but ``kraft.version`` in a Kafka release, such as 4.0 or 4.0-IV3.

    Raises:
        UsageError: there is no such release; the message names ``option``.
    """
    return levels_of_metadata(_metadata_level(option, text))


def levels_of_metadata(level: int) -> dict[str, int]:
    """Return the levels of all features but ``kraft.version`` in the release with this ``metadata.version``."""
    return {name: of_release for name, of_release in _release(level).items() if name != _KRAFT_VERSION}


def _release(level: int) -> dict[str, int]:
    return {_METADATA_VERSION: level, **{name: to for name, to, since in _RELEASE_LEVELS if level >= since}}


async def _update(
    admin: AdminClient,
    levels: Mapping[str, int],
    kind: UpgradeType,
    verb: str,
    *,
    dry_run: bool,
    of_release: bool = False,
) -> int:
    from triokafka.client.admin import FeatureUpdate
    from triokafka.errors import KafkaError

    wanted = dict(levels)
    if of_release:
        supported = (await admin.describe_features()).supported
        for name in sorted(set(wanted) - set(supported)):
            click.echo(f"Note: the cluster does not support {name}; it stays as it is.", err=True)
            del wanted[name]
    updates = {name: FeatureUpdate(level, kind) for name, level in wanted.items()}
    try:
        await admin.update_features(updates, validate_only=dry_run)
    except KafkaError as error:
        raise_without_brokers(error)
        for name, level in sorted(wanted.items()):
            to = "" if verb == "disabled" else f" to {level}"
            click.echo(f"Could not {verb.removesuffix('d')} {name}{to}. {described(error)}", err=True)
        return 1
    for name, level in sorted(wanted.items()):
        to = "." if verb == "disabled" else f" to {level}."
        click.echo(f"{name} {'can be' if dry_run else 'was'} {verb}{to}")
    return 0
