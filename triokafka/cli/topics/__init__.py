"""``triokafka topics``: list, create, describe, alter and delete topics.

One module per kind of command: `listing`, `creating`, `describing`, `altering`, `deleting`. `topic_selection`
resolves the selected topics.
"""

from __future__ import annotations

import click

from triokafka.cli.output import CommandGroup
from triokafka.cli.topics.altering import alter
from triokafka.cli.topics.creating import create
from triokafka.cli.topics.deleting import delete
from triokafka.cli.topics.describing import describe
from triokafka.cli.topics.listing import list_topics


@click.group("topics", cls=CommandGroup)
def command() -> None:
    """List, create, describe, alter and delete topics.

    TOPICS is one or more names or regular expressions, separated by commas.
    """


for _one in (list_topics, create, describe, alter, delete):
    command.add_command(_one)
