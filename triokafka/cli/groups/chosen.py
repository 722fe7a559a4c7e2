"""What the commands about groups share: their options, which groups are meant, and how a failure is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from triokafka.cli.app import describe
from triokafka.cli.completing import group_names
from triokafka.cli.connection import with_admin

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import GroupListing

F = TypeVar("F", bound=Callable[..., Any])


class Connection(NamedTuple):
    """Where the brokers are, and how the admin client is set."""

    bootstrap: str
    settings: Mapping[str, Any]

    def run(self, work: Callable[[AdminClient], Awaitable[int | None]]) -> int:
        """Run ``work`` with an admin client; return the exit status that it gives (None is 0)."""
        return with_admin(self.bootstrap, self.settings, work)


def group_options(function: F) -> F:
    """Which groups: names as arguments or with Kafka's ``--group``, or ``--all-groups``."""
    function = click.option("--all-groups", is_flag=True, help="All groups of consumers.")(function)
    function = click.option(
        "--group", "more_groups", multiple=True, metavar="GROUP", shell_complete=group_names,
        help="One of the groups.",
    )(function)  # fmt: skip
    return click.argument("groups", nargs=-1, metavar="[GROUPS]...", shell_complete=group_names)(function)


class Chosen(NamedTuple):
    """The groups that are meant; None for all."""

    names: list[str] | None

    @classmethod
    def of(cls, groups: Iterable[str], more_groups: Iterable[str], all_groups: bool) -> Chosen:
        """Put the ways to say it together; wrong use raises `click.UsageError`."""
        names = list(dict.fromkeys([*groups, *more_groups]))
        if bool(names) is all_groups:
            raise click.UsageError("Say which: names of groups, or --all-groups.")
        if "" in names:
            raise click.UsageError("A group's name is not empty.")
        return cls(None if all_groups else names)

    async def resolve(self, admin: AdminClient) -> tuple[list[str], int]:
        """The groups' names, and 1 when some may be missing because a broker did not tell its own."""
        if self.names is not None:
            return self.names, 0
        found, status = await listings(admin)
        return [listing.group_id for listing in found if listing.is_consumer_group], status


async def listings(
    admin: AdminClient, states: Iterable[str] = (), types: Iterable[str] = ()
) -> tuple[list[GroupListing], int]:
    """The groups of all brokers by id; a broker that fails is told, and makes the exit status 1."""
    by_broker = await admin.list_groups_by_broker(states=states, types=types)
    for node, error in by_broker.errors.items():
        complain(error, f"The groups of broker {node.node_id} at {node.address} are missing:")
    found = {
        listing.group_id: listing for node in by_broker if node not in by_broker.errors for listing in by_broker[node]
    }
    return sorted(found.values(), key=lambda listing: listing.group_id), 1 if by_broker.errors else 0


def complain(error: Exception | str, about: str = "") -> None:
    """Tell a failure in one line on standard error; the run goes on."""
    text = error if isinstance(error, str) else describe(error)
    click.echo(f"triokafka: {about} {text}" if about else f"triokafka: {text}", err=True)


def note(text: str) -> None:
    """Say something that is not an error, beside the output."""
    click.echo(f"Note: {text}", err=True)
