"""``triokafka demo``: the main job on real input.

`flights` is the input and the reference, `member` one consumer process, `group` watches such processes, `spark_job`
asks Spark, `report` compares and draws, `run` puts the steps together.
"""

from __future__ import annotations

import os
import tempfile

import click

from triokafka.cli.output import examples


@click.command(
    "demo",
    epilog=examples(
        "triokafka demo --output demo-output",
        "triokafka demo --drop-one",
    ),
)
@click.option("--output", default="demo-output", show_default=True, help="Directory for the picture.")
@click.option("--data-dir", help="Directory for the broker's data; a temporary one when left out.")
@click.option("--drop-one", is_flag=True, help="Lose one record on purpose: the comparisons must find it (exit 1).")
def command(output: str, data_dir: str | None, drop_one: bool) -> int:
    """Send 336,776 real flights through broker, consumer group and Spark, and compare everything.

    Exits with 0 only if every comparison holds.
    """
    import trio
    from rich.console import Console

    from triokafka.cli.demo.report import save_picture
    from triokafka.cli.demo.run import Demo, show
    from triokafka.spark import find_java

    find_java()  # better now than after a minute
    console = Console()
    picture = os.path.join(output, "demo.png")
    with tempfile.TemporaryDirectory(prefix="triokafka-demo-") as temporary:
        demo = Demo(drop_one=drop_one, console=console)
        findings = trio.run(demo.run, data_dir or os.path.join(temporary, "data"))
    save_picture(findings, picture)
    return show(findings, console, picture)
