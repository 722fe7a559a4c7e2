"""The picture of the producer benchmark: speed by broker and size, latency, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from benchmarks.produce import Findings, LatencyRow, MemoryRow, Row

_COLOURS: Final = {"none": "#4c72b0", "lz4": "#dd8452", "zstd": "#55a868"}
_QUANTILES: Final = (("p50_ms", "#4c72b0"), ("p99_ms", "#dd8452"), ("p999_ms", "#c44e52"))


def draw(found: Findings) -> Any:
    """A matplotlib figure: a column for each broker, a line of panels for each size, and latency and memory below."""
    from matplotlib.figure import Figure

    brokers = list(dict.fromkeys(row.broker for row in found.rows)) or ["sink"]
    sizes = list(dict.fromkeys(row.size for row in found.rows))
    below = bool(found.latency or found.memory)
    figure = Figure(figsize=(7 * len(brokers), 4.6 * (len(sizes) + below)))
    axes = figure.subplots(len(sizes) + below, len(brokers), squeeze=False)
    for line, size in enumerate(sizes):
        for column, broker in enumerate(brokers):
            chosen = [row for row in found.rows if (row.broker, row.size) == (broker, size)]
            _speed(axes[line][column], f"{broker}, {size} B", chosen)
    if below:
        for column, broker in enumerate(brokers):
            _latency(axes[-1][column], broker, [row for row in found.latency if row.broker == broker])
        if found.memory:
            _memory(axes[-1][-1].inset_axes((0.45, 0.58, 0.53, 0.4)), found.memory)
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
    axis.set_title("peak MiB: before and while the broker is silent", fontsize=8)
    axis.tick_params(labelsize=7)
