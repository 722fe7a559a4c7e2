"""The picture of the producer benchmark: speed by broker and size, latency, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from benchmarks.produce import Findings, LatencyRow, MemoryRow, Row

_COLOURS: Final = {"none": "#4c72b0", "lz4": "#dd8452", "zstd": "#55a868"}
_RECORDS_A_SECOND: Final = (1e4, 2e7)
_QUANTILES: Final = (("p50_ms", "#4c72b0"), ("p99_ms", "#dd8452"), ("p999_ms", "#c44e52"))


def draw(found: Findings) -> Any:
    """A matplotlib figure: a column for each broker, a line of panels for each size, and latency and memory below."""
    from matplotlib.figure import Figure

    brokers = list(dict.fromkeys(row.broker for row in found.rows)) or ["sink"]
    sizes = list(dict.fromkeys(row.size for row in found.rows))
    lines = len(sizes) + bool(found.latency) + bool(found.memory)
    figure = Figure(figsize=(7 * len(brokers), 4.6 * lines))
    axes = figure.subplots(lines, len(brokers), squeeze=False)
    for line, size in enumerate(sizes):
        for column, broker in enumerate(brokers):
            chosen = [row for row in found.rows if (row.broker, row.size) == (broker, size)]
            _speed(axes[line][column], f"{broker}, {size} B", chosen)
    if found.latency:
        for column, broker in enumerate(brokers):
            chosen_latency = [row for row in found.latency if row.broker == broker]
            _latency(axes[len(sizes)][column], broker, chosen_latency)
    if found.memory:
        _memory(axes[-1][0], found.memory)
        for axis in axes[-1][1:]:
            axis.set_visible(False)
    return figure


def _speed(axis: Any, title: str, rows: Sequence[Row]) -> None:
    clients = list(dict.fromkeys(row.client for row in rows))[::-1]
    compressions = list(dict.fromkeys(row.compression for row in rows))
    height = 0.8 / max(1, len(compressions))
    for index, compression in enumerate(compressions):
        chosen = [row for row in rows if row.compression == compression]
        axis.barh(
            [clients.index(row.client) + 0.4 - height * (index + 0.5) for row in chosen],
            [row.records_per_second for row in chosen],
            height,
            label=compression,
            color=_COLOURS.get(compression),
        )
    axis.set_yticks(range(len(clients)), clients, fontsize=8)
    axis.set_xscale("log")
    axis.set_xlim(*_RECORDS_A_SECOND)
    axis.set_xlabel("records/s (log)")
    axis.set_title(title)
    axis.grid(axis="x", which="both", alpha=0.3)
    if rows:
        axis.legend(fontsize=8)


def _latency(axis: Any, broker: str, rows: Sequence[LatencyRow]) -> None:
    rows = rows[::-1]
    for index, (name, colour) in enumerate(_QUANTILES):
        axis.barh(
            [place + 0.27 * (1 - index) for place in range(len(rows))],
            [getattr(row, name) for row in rows],
            0.27,
            label=name.removesuffix("_ms").replace("p999", "p99.9"),
            color=colour,
        )
    axis.set_yticks(range(len(rows)), [row.client for row in rows], fontsize=8)
    axis.set_xlabel("milliseconds from the intended time, 5,000 records/s")
    axis.set_title(f"latency, {broker}")
    axis.grid(axis="x", alpha=0.3)
    if rows:
        axis.legend(fontsize=8, loc="lower right")


def _memory(axis: Any, rows: Sequence[MemoryRow]) -> None:
    rows = rows[::-1]
    axis.barh(range(len(rows)), [row.peak_mib for row in rows], color="#c44e52")
    axis.barh(range(len(rows)), [row.before_mib for row in rows], color="#8c8c8c")
    axis.set_yticks(range(len(rows)), [row.client for row in rows])
    axis.set_title("peak memory before (grey) and while (red) the broker does not answer")
    axis.set_xlabel("MiB")
    axis.tick_params(axis="y", labelsize=8)
