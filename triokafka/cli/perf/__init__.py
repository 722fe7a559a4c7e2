"""``triokafka perf``: measure how fast records are sent (`produce`) and read (`consume`)."""

from __future__ import annotations

import click

from triokafka.cli.output import CommandGroup
from triokafka.cli.perf.consume import consume
from triokafka.cli.perf.produce import produce


@click.group("perf", cls=CommandGroup)
def command() -> None:
    """Measure how fast records are sent and read."""


command.add_command(produce)
command.add_command(consume)
