"""The commands ``acls list``, ``acls add`` and ``acls remove``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from triokafka.cli.acls.acl_flags import ChosenAcls
from triokafka.cli.completion_values import group_names, topic_names
from triokafka.cli.connection import AdminConnection, admin_command, admin_options, controller_option
from triokafka.cli.output import CommandGroup, confirm, examples, output_options, print_json
from triokafka.security.acl import AclBinding, AclBindingFilter, AclPatternType, ResourceType

if TYPE_CHECKING:
    from triokafka import AdminClient

F = TypeVar("F", bound=Callable[..., Any])

_PATTERN_TYPES: Final = {
    kind.name.lower(): kind
    for kind in (AclPatternType.LITERAL, AclPatternType.PREFIXED, AclPatternType.ANY, AclPatternType.MATCH)
}


@click.group("acls", cls=CommandGroup)
def command() -> None:
    """List, add and remove access control lists: who may or may not do what.

    The brokers need an authorizer (authorizer.class.name).
    """


def _resource_options(function: F) -> F:
    for option in (
        click.option("--topic", "topics", multiple=True, shell_complete=topic_names, help="A topic; * for all."),
        click.option("--group", "groups", multiple=True, shell_complete=group_names, help="A group; * for all."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option("--transactional-id", "transactional_ids", multiple=True, help="A transactional id; * for all."),
        click.option("--delegation-token", "delegation_tokens", multiple=True, help="A delegation token, by its id."),
        click.option("--user-principal", "users", multiple=True, help="A user, as the resource of token operations."),
        click.option(
            "--resource-pattern-type",
            "pattern_type",
            type=click.Choice(list(_PATTERN_TYPES), case_sensitive=False),
            default="literal",
            show_default=True,
            help="How names match. A filter may be any, or match: every ACL that applies to the name.",
        ),
    ):
        function = option(function)
    return function


def _entry_options(function: F) -> F:
    for option in (
        click.option("--allow-principal", "allow_principals", multiple=True, metavar="TYPE:NAME", help="Who may."),
        click.option("--allow-host", "allow_hosts", multiple=True, metavar="ADDRESS", help="From where.  [default: *]"),
        click.option("--deny-principal", "deny_principals", multiple=True, metavar="TYPE:NAME", help="Who may not."),
        click.option("--deny-host", "deny_hosts", multiple=True, metavar="ADDRESS", help="From where.  [default: *]"),
        click.option("--operation", "operations", multiple=True, metavar="NAME", help="What.  [default: all]"),
        click.option("--producer", is_flag=True, help="What a producer to the topics needs."),
        click.option("--consumer", is_flag=True, help="What a consumer of the topics in the groups needs."),
        click.option("--idempotent", is_flag=True, help="With --producer: also IDEMPOTENT_WRITE on the cluster."),
    ):
        function = option(function)
    return function


def _chosen(flags: dict[str, Any]) -> ChosenAcls:
    return ChosenAcls(**{**flags, "pattern_type": _PATTERN_TYPES[flags["pattern_type"].lower()]})


@command.command(
    "list",
    epilog=examples(
        "triokafka acls list",
        "triokafka acls list --topic orders --resource-pattern-type match",
        "triokafka acls list --principal User:alice --json",
    ),
)
@controller_option
@admin_command
@_resource_options
@click.option("--principal", "principals", multiple=True, metavar="TYPE:NAME", help="Only ACLs of this principal.")
@output_options
async def list_acls(admin: AdminClient, principals: tuple[str, ...], output: str, **flags: Any) -> None:
    """Print ACLs: all, or those of resources and principals."""
    chosen = _chosen(flags)
    resources: list[tuple[ResourceType, str | None, AclPatternType]] = [*chosen.resources()]
    if not resources:
        anything = AclPatternType.ANY if chosen.pattern_type is AclPatternType.LITERAL else chosen.pattern_type
        resources = [(ResourceType.ANY, None, anything)]
    filters = [AclBindingFilter(*resource, principal) for resource in resources for principal in principals or (None,)]
    found: dict[AclBinding, None] = {}
    for one in filters:
        found.update(dict.fromkeys(await admin.describe_acls(one)))
    _print(found, "Current ACLs", output)


@command.command(
    "add",
    epilog=examples(
        "triokafka acls add --allow-principal User:alice --producer --topic orders",
        "triokafka acls add --allow-principal User:bob --consumer --topic orders --group billing",
        "triokafka acls add --allow-principal User:'*' --deny-principal User:eve --operation read --topic orders",
    ),
)
@controller_option
@admin_command
@_resource_options
@_entry_options
@output_options
async def add(admin: AdminClient, output: str, **flags: Any) -> None:
    """Add ACLs: each principal with each host and operation, on each resource."""
    acls = _chosen(flags).bindings()
    await admin.create_acls(acls)
    _print(acls, "Adding ACLs", output)


@command.command(
    "remove",
    epilog=examples(
        "triokafka acls remove --allow-principal User:alice --producer --topic orders --yes",
        "triokafka acls remove --topic orders",
    ),
)
@controller_option
@admin_options
@_resource_options
@_entry_options
@click.option("--yes", "-y", "--force", is_flag=True, help="Do not ask for confirmation.")
@output_options
def remove(connection: AdminConnection, yes: bool, output: str, **flags: Any) -> int:
    """Remove exactly the ACLs that add would create; without a principal, all ACLs of the resources."""
    filters = _chosen(flags).filters()
    if not yes:
        for one in filters:
            click.echo(f"  {_filter_text(one)}", err=True)
        confirm("Remove these ACLs?")

    async def work(admin: AdminClient) -> None:
        removed = await admin.delete_acls(filters)
        _print(dict.fromkeys(acl for acls in removed.values() for acl in acls), "Removed ACLs", output)

    return connection.run(work)


def _filter_text(one: AclBindingFilter) -> str:
    resource = f"{one.resource_type.name} {one.resource_name!r} ({one.pattern_type.name})"
    if one.principal is None:
        return f"every ACL of {resource}"
    return f"{one.permission_type.name} {one.principal} {one.operation.name} from {one.host} on {resource}"


def _print(acls: Iterable[AclBinding], title: str, output: str) -> None:
    """Print ACLs by resource, in the lines of ``kafka-acls``."""
    ordered = sorted(acls)
    if output == "json":
        print_json(
            [
                {
                    "resource_type": acl.resource_type.name,
                    "resource_name": acl.resource_name,
                    "pattern_type": acl.pattern_type.name,
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": acl.operation.name,
                    "permission_type": acl.permission_type.name,
                }
                for acl in ordered
            ]
        )
        return
    shown = None
    for acl in ordered:
        if acl[:3] != shown:
            shown = acl[:3]
            pattern = (
                f"resourceType={acl.resource_type.name}, name={acl.resource_name}, patternType={acl.pattern_type.name}"
            )
            click.echo(f"{title} for resource `ResourcePattern({pattern})`:")
        entry = f"operation={acl.operation.name}, permissionType={acl.permission_type.name}"
        click.echo(f"\t(principal={acl.principal}, host={acl.host}, {entry})")
