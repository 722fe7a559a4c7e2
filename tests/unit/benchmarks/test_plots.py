"""Plots say their result in the title, and have the value at every bar."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import asyncio, blocking, mirror, produce, produce_rows
from benchmarks.pictures import draw
from benchmarks.plots import BEHIND, COLOURS, OURS, bars, colour_of, shown
from benchmarks.side_by_side import Row
from docs.measured import NUMBERS

to_rgba = pytest.importorskip("matplotlib.colors").to_rgba


def rows_of(table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((NUMBERS / f"{table}.json").read_text(encoding="utf-8"))["rows"]
    return rows


@pytest.mark.parametrize(
    ("table", "row"), [("consume", Row), ("blocking", blocking.Row), ("asyncio", asyncio.Row), ("mirror", mirror.Row)]
)
def test_a_plot_has_a_claim_and_a_value_at_each_bar(table: str, row: Any) -> None:
    rows = [row(**one) for one in rows_of(table)]
    figure = draw(table, rows)
    (axis,) = figure.axes
    assert " times " in figure.get_suptitle()
    assert axis.get_xlabel().endswith("is better)")
    assert len(axis.patches) == len(axis.texts) == len(rows)


def test_the_producers_plot_has_the_ratio_at_the_bars_of_others() -> None:
    speed = [produce_rows.Row(**one) for one in rows_of("produce") if "compression" in one]
    figure = produce.draw(produce_rows.Findings(speed, [], [], [], []))
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert sum(text.endswith(" times send") for text in texts) == len(speed) - 1


def test_a_program_has_one_colour_in_every_plot() -> None:
    assert colour_of("confluent consume(1000)") == colour_of("confluent produce") == COLOURS["confluent"]
    assert colour_of("triokafka poll") == OURS
    assert [shown(value) for value in (0.821, 9.12, 15.2, 383.4, 12_345.6)] == ["0.82", "9.12", "15.2", "383", "12,346"]


@pytest.mark.parametrize(("axis", "pale"), [("ratio (longer is better)", [0.5]), ("ratio (shorter is better)", [2.0])])
def test_bars_on_the_worse_side_of_equality_are_pale(axis: str, pale: list[float]) -> None:
    figure = bars("title", axis, lambda row: (f"row {row}", row), [0.5, 1.0, 2.0], even=1)
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches if bar.get_facecolor() == to_rgba(BEHIND)] == pale
