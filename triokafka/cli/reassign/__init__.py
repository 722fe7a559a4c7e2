"""``triokafka reassign``: move partitions to other brokers or directories.

`plan` has the JSON files and everything that can be decided without a broker, `commands` the commands.
"""

from __future__ import annotations

import click

from triokafka.cli.output import CommandGroup
from triokafka.cli.reassign.commands import cancel, execute, generate, list_reassignments, verify


@click.group("reassign", cls=CommandGroup)
def command() -> None:
    """Move partitions to other brokers: plan, begin, follow and cancel reassignments.

    The files have the JSON of Kafka's kafka-reassign-partitions.
    """


for _one in (generate, execute, verify, cancel, list_reassignments):
    command.add_command(_one)
