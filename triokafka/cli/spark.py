"""``triokafka spark``: commands for the Spark source and sink."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import click

from triokafka.cli.client_properties import pairs
from triokafka.cli.output import CommandGroup, examples
from triokafka.spark.doctor import Finding, diagnose

_MARKS: Final = {"ok": "ok     ", "advice": "advice ", "problem": "PROBLEM"}


@click.group("spark", cls=CommandGroup)
def command() -> None:
    """Commands for the Spark source and sink."""


@command.command(
    "doctor",
    epilog=examples(
        "triokafka spark doctor",
        "triokafka spark doctor --conf spark.python.unix.domain.socket.enabled=true --json",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of lines.")
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A Spark setting, as for spark-submit.")
def doctor(as_json: bool, settings: Sequence[str]) -> int:
    """Check Java, the Python versions of driver and workers, packages and settings, and print a fix for each problem.

    Ends with status 1 if a problem prevents the source from working. Settings come from spark-defaults.conf and --conf.
    """
    findings = diagnose(pairs("--conf", settings) or None)
    if as_json:
        click.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            click.echo(_line(finding))
    return int(any(finding.verdict == "problem" for finding in findings))


def _line(finding: Finding) -> str:
    line = f"{_MARKS[finding.verdict]}  {finding.what}: {finding.found}"
    return f"{line}\n         -> {finding.fix}" if finding.fix else line
