"""``triokafka groups``: list and describe consumer groups with their lag; reset and delete their offsets.

One module per kind of command: `listing`, `describing`, `resetting`, `deleting`. `lag` collects offsets and lag,
`reset_arguments` parses the options of a reset, and `table` prints. `validating` checks patterns.
"""

from __future__ import annotations

import click

from triokafka.cli.groups.deleting import delete, delete_offsets
from triokafka.cli.groups.describing import describe, members, offsets
from triokafka.cli.groups.listing import list_groups
from triokafka.cli.groups.resetting import reset_offsets
from triokafka.cli.groups.validating import validate_regex
from triokafka.cli.output import CommandGroup


@click.group("groups", cls=CommandGroup)
def command() -> None:
    """List and describe consumer groups with their lag, reset and delete their offsets, and delete them.

    No command joins a group, so none of them triggers a rebalance.
    """


for _one in (list_groups, describe, members, offsets, reset_offsets, delete_offsets, delete, validate_regex):
    command.add_command(_one)
