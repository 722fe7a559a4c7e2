"""Shared options of the group commands, the selection of groups, and messages on standard error."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from triokafka.cli.app import describe
from triokafka.cli.completion_values import group_names
from triokafka.cli.unreachable_brokers import raise_without_brokers

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import GroupListing


class ChosenGroups(NamedTuple):
    """The names of the selected groups; None for all groups."""

    names: list[str] | None

    @classmethod
    def of(cls, groups: Iterable[str], more_groups: Iterable[str], all_groups: bool) -> ChosenGroups:
        """Combine arguments and options. Raises `click.UsageError` unless exactly one of them selects groups."""
        names = list(dict.fromkeys([*groups, *more_groups]))
        if bool(names) is all_groups:
            raise click.UsageError("No groups: give their names, or --all-groups.")
        if "" in names:
            raise click.UsageError("The group id is empty.")
        return cls(None if all_groups else names)

    async def resolve(self, admin: AdminClient) -> tuple[list[str], int]:
        """Return the groups' names and the exit status: 1 where groups are missing because a broker failed."""
        if self.names is not None:
            return self.names, 0
        found, status = await listings(admin)
        return [listing.group_id for listing in found if listing.is_consumer_group], status


def group_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add GROUPS as arguments or as Kafka's ``--group``, and ``--all-groups``. The command receives ``chosen``."""

    @functools.wraps(function)
    def command(*, groups: tuple[str, ...], more_groups: tuple[str, ...], all_groups: bool, **options: Any) -> Any:
        return function(chosen=ChosenGroups.of(groups, more_groups, all_groups), **options)

    for option in (
        click.option("--all-groups", is_flag=True, help="All consumer groups."),
        click.option("--group", "more_groups", multiple=True, metavar="GROUP", shell_complete=group_names,
                     help="A group; repeatable."),
        click.argument("groups", nargs=-1, metavar="[GROUPS]...", shell_complete=group_names),
    ):  # fmt: skip
        command = option(command)
    return command


async def listings(
    admin: AdminClient, states: Iterable[str] = (), types: Iterable[str] = ()
) -> tuple[list[GroupListing], int]:
    """Return the groups of all brokers, sorted by id, and the exit status: 1 if a broker failed, which is reported."""
    by_broker = await admin.list_groups_by_broker(states=states, types=types)
    for node, error in by_broker.errors.items():
        complain(error, f"The groups of broker {node.node_id} at {node.address} are missing:")
    found = {
        listing.group_id: listing for node in by_broker if node not in by_broker.errors for listing in by_broker[node]
    }
    return sorted(found.values(), key=lambda listing: listing.group_id), 1 if by_broker.errors else 0


def complain(error: Exception | str, about: str = "") -> None:
    """Print a failure in one line on standard error; the command continues.

    Raises:
        KafkaTimeoutError: no broker has responded, so that everything will fail.
    """
    if not isinstance(error, str):
        raise_without_brokers(error)
    text = error if isinstance(error, str) else describe(error)
    click.echo(f"triokafka: {about} {text}" if about else f"triokafka: {text}", err=True)


def note(text: str) -> None:
    """Print a note on standard error."""
    click.echo(f"Note: {text}", err=True)
