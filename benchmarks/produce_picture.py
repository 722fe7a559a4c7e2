"""The picture of the producer benchmark: speed by broker and size, latency, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from benchmarks import plots
from benchmarks.produce_rows import Findings, LatencyRow, MemoryRow, Row

_STRENGTH: Final = {"none": 1.0, "lz4": 0.65, "zstd": 0.4}
_BROKERS: Final = {"sink": "sink, which only acknowledges"}
_QUANTILES: Final = (("p50_ms", "p50", 1.0), ("p99_ms", "p99", 0.65), ("p999_ms", "p99.9", 0.4))


def draw(found: Findings) -> Any:
    """Return a matplotlib figure: a column for each broker, a row of panels for each size, latency and memory below.

    Each library has one colour everywhere; paler bars are compressed, or higher percentiles. Beside each bar stand its
    value and its ratio to our ``send``.
    """
    from matplotlib.figure import Figure

    brokers = list(dict.fromkeys(row.broker for row in found.rows)) or ["sink"]
    sizes = list(dict.fromkeys(row.size for row in found.rows))
    heights = [1.0 + 0.17 * _most_rows(found.rows, size) for size in sizes]
    heights += [1.0 + 0.55 * len({row.client for row in found.latency})] if found.latency else []
    heights += [1.0 + 0.3 * len(found.memory)] if found.memory else []
    figure = Figure(figsize=(8 * len(brokers), 0.7 + sum(heights or [1.0])))
    axes = figure.subplots(max(1, len(heights)), len(brokers), squeeze=False, height_ratios=heights or [1.0])
    for line, size in enumerate(sizes):
        for column, broker in enumerate(brokers):
            chosen = [row for row in found.rows if (row.broker, row.size) == (broker, size)]
            title = f"{_BROKERS.get(broker, broker)}: records of {size} B a second (longer is better)"
            _speed(axes[line][column], title, chosen)
    if found.latency:
        for column, broker in enumerate(brokers):
            _latency(axes[len(sizes)][column], broker, [row for row in found.latency if row.broker == broker])
    if found.memory:
        _memory(axes[-1][0], found.memory)
        for axis in axes[-1][1:]:
            axis.set_visible(False)
    plots.head(figure, _claim(found))
    return figure


def _claim(found: Findings) -> str:
    speed = {row.client: row.records_per_second for row in found.rows if (row[:3]) == ("sink", 100, "none")}
    ours, theirs = speed.get("triokafka send"), speed.get("confluent produce")
    if ours is None or theirs is None:
        return "Producing, side by side"
    return f"Producing with send is {plots.shown(ours / theirs)} times as fast as confluent-kafka's produce"


def _most_rows(rows: Sequence[Row], size: int) -> int:
    brokers = {row.broker for row in rows}
    return max(sum((row.broker, row.size) == (broker, size) for row in rows) for broker in brokers)


def _speed(axis: Any, title: str, rows: Sequence[Row]) -> None:
    base = {row.compression: row.records_per_second for row in rows if row.client == "triokafka send"}
    texts = []
    for row in rows:
        send = base.get(row.compression, 0.0)
        multiple = f", {plots.shown(row.records_per_second / send)} times send" if send else ""
        texts.append(f"{row.records_per_second:,.0f}{'' if row.client == 'triokafka send' else multiple}")
    _bars(
        axis,
        [row.client if row.compression == "none" else f"{row.client}, {row.compression}" for row in rows],
        [row.records_per_second for row in rows],
        texts,
        [_STRENGTH.get(row.compression, 1.0) for row in rows],
    )
    axis.set_title(title, loc="left", fontsize=10)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M")


def _latency(axis: Any, broker: str, rows: Sequence[LatencyRow]) -> None:
    labels, values, strengths = [], [], []
    for row in rows:
        for field, name, strength in _QUANTILES:
            labels.append(f"{row.client}, {name}")
            values.append(getattr(row, field))
            strengths.append(strength)
    _bars(axis, labels, values, [f"{plots.shown(value)} ms" for value in values], strengths)
    title = f"{_BROKERS.get(broker, broker)}: latency at 5,000 records a second (shorter is better)"
    axis.set_title(title, loc="left", fontsize=10)
    if values:
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 3, max(values) * 5)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g} ms")


def _memory(axis: Any, rows: Sequence[MemoryRow]) -> None:
    _bars(
        axis,
        [row.client for row in rows],
        [row.peak_mib for row in rows],
        [f"{row.peak_mib:.0f} MiB, {row.before_mib:.0f} MiB before it stopped" for row in rows],
        [1.0] * len(rows),
    )
    axis.set_title("Peak memory while the broker does not answer, MiB (shorter is better)", loc="left", fontsize=10)


def _bars(
    axis: Any, labels: Sequence[str], values: Sequence[float], texts: Sequence[str], strengths: Sequence[float]
) -> None:
    places = range(len(labels))[::-1]
    for place, label, value, text, strength in zip(places, labels, values, texts, strengths, strict=True):
        axis.barh(place, value, 0.75, color=plots.colour_of(label), alpha=strength)
        axis.annotate(text, (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set_yticks(places, labels)
    axis.set_xlim(0, max(values, default=1.0) * 1.35)
    plots.quiet(axis)
    axis.tick_params(axis="y", labelsize=8)
