"""``triokafka perf``: measure how fast records are sent (`produce`), read (`consume`), and both (`end_to_end`)."""

from __future__ import annotations

import click

from triokafka.cli.output import CommandGroup
from triokafka.cli.perf.consume import consume
from triokafka.cli.perf.end_to_end import end_to_end
from triokafka.cli.perf.produce import produce


@click.group("perf", cls=CommandGroup)
def command() -> None:
    """Measure how fast records are sent and read, and how long one takes."""


command.add_command(produce)
command.add_command(consume)
command.add_command(end_to_end)
