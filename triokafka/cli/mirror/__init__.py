"""``triokafka mirror``: copy topics and positions of groups from one cluster to another."""

from __future__ import annotations

import click

from triokafka.cli.mirror.offsets import offsets
from triokafka.cli.mirror.running import run
from triokafka.cli.mirror.status import status
from triokafka.cli.output import CommandGroup


@click.group("mirror", cls=CommandGroup)
def command() -> None:
    """Copy topics and the positions of consumer groups from one cluster to another, as MirrorMaker 2 does."""


for _each in (run, status, offsets):
    command.add_command(_each)
