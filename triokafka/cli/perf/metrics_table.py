"""The client's metrics at the end of a run, in the lines of Kafka's tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from triokafka.metrics import MetricName


def print_metrics(metrics: Mapping[MetricName, float], *, err: bool = False) -> None:
    """Print one line for each metric: ``group:name:{tag=value}``, and its value with three decimals."""
    lines = {}
    for name in sorted(metrics):
        tags = ", ".join(f"{key}={value}" for key, value in name.tags.items())
        lines[f"{name.group}:{name.name}:{{{tags}}}"] = metrics[name]
    width = max(map(len, lines), default=0)
    click.echo(f"\n{'Metric Name':{width}}   Value", err=err)
    for text, value in lines.items():
        click.echo(f"{text:{width}} : {value:.3f}", err=err)
