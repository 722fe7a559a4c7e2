"""The pictures of a demo run: who owned which partition when, and how long a killed node stopped the records.

All texts are at least as large as 11 points on a figure 10 inches wide, so that they can be read at 800 pixels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from triokafka.cli.demo.report import Delivered, Findings, Outage, Ownership

_MEMBERS: Final = ("#3b6fb6", "#c8791d", "#2f8f5b", "#8a4f9e")
_FAULT: Final = "#c0282d"
_TEXT: Final = "#222222"
_QUIET: Final = "#6b6b6b"
_RATE: Final = "#3b6fb6"
_PAPER: Final = {"facecolor": "white", "alpha": 0.85, "linewidth": 0, "boxstyle": "round,pad=0.1"}
_LANE: Final = 0.8  # of the distance between lanes
_STEADY: Final = 1.5  # seconds between two batches of a partition that count as without a pause
_BIN: Final = 0.5  # seconds, at least
_CHARACTER: Final = 0.088  # inches, of the lanes' texts
_RATES: Final = 2.0  # inches, the height of a rate's axis
_ROW: Final = 0.27  # inches between the rows of texts above an axis
_TURN: Final = 0.7  # of the time axis: texts of later marks end at their mark instead of beginning there


def save_pictures(findings: Findings, directory: str) -> list[str]:
    """Draw ``demo.png``, and ``outages.png`` if nodes were killed, and return the paths."""
    os.makedirs(directory or ".", exist_ok=True)
    pictures = {"demo.png": draw_lanes(findings)}
    if findings.produce_outages or findings.consume_outages:
        pictures["outages.png"] = draw_outages(findings)
    paths = []
    for name, figure in pictures.items():
        paths.append(os.path.join(directory, name))
        figure.savefig(paths[-1], dpi=160)
    return paths


class Mark(NamedTuple):
    """An event: when, and what happened."""

    at: float
    text: str
    colour: str


def draw_lanes(findings: Findings) -> Any:
    """Return a matplotlib figure with a lane for each partition, from the first assignment to the last batch."""
    from matplotlib.figure import Figure

    zero = min((owned.since for owned in findings.ownerships), default=0.0)
    end = max((batch.at for batch in findings.delivered), default=zero) - zero + 0.5
    members = sorted({owned.member for owned in findings.ownerships})
    colours = {member: _MEMBERS[index % len(_MEMBERS)] for index, member in enumerate(members)}
    partitions = sorted({owned.partition for owned in findings.ownerships})
    marks = [Mark(at - zero, what, _FAULT if "kill" in what else _TEXT) for at, what in findings.faults]
    marks += [Mark(outage.at - zero, outage.what, _FAULT) for outage in findings.consume_outages]
    rows = _rows_of_labels(marks, end)
    lanes = 0.62 * len(partitions)
    above = 0.12 + _ROW * (max(rows, default=-1) + 1)
    height = 0.6 + lanes + above + 0.85
    figure = Figure(figsize=(10, height))
    axis = figure.add_axes((0.105, 0.6 / height, 0.785, lanes / height))
    seconds_an_inch = end / 7.85
    for place, partition in enumerate(partitions):
        _draw_lane(
            axis,
            place,
            [owned for owned in findings.ownerships if owned.partition == partition],
            [batch for batch in findings.delivered if batch.partition == partition],
            colours,
            Span(zero, end, seconds_an_inch),
        )
        count = findings.end_offsets.get(partition, 0)
        axis.text(end * 1.01, place, f"{count:,}", va="center", fontsize=11, color=_TEXT)
    _draw_marks(axis, marks, rows, end, lanes)
    axis.text(end * 1.01, -0.55, "records", va="bottom", fontsize=11, color=_QUIET)
    axis.set_xlim(0, end)
    axis.set_ylim(len(partitions) - 0.45, -0.55)
    axis.set_yticks(range(len(partitions)), [f"partition {partition}" for partition in partitions], fontsize=11)
    axis.set_xlabel("seconds since the group's first assignment", fontsize=11, color=_QUIET)
    _quiet_frame(axis)
    figure.text(0.012, 1 - 0.34 / height, _title(findings), fontsize=14, fontweight="bold", color=_TEXT)
    figure.text(
        0.012,
        1 - 0.66 / height,
        "One lane per partition, in the colour of its owner. Pale: owned, but no records handled. White: no owner.",
        fontsize=11,
        color=_QUIET,
    )
    return figure


def _draw_marks(axis: Any, marks: Sequence[Mark], rows: Sequence[int], end: float, height: float) -> None:
    """Draw a line through an axis of ``height`` inches for each mark, up to its text above."""
    for mark, row in zip(marks, rows, strict=True):
        right = mark.at < end * _TURN
        top = 1 + (0.1 + _ROW * (row + 0.5)) / height
        axis.axvline(mark.at, ymax=top, color=mark.colour, linewidth=1.8, zorder=4, clip_on=False)
        axis.annotate(
            mark.text,
            (mark.at, 1),
            xycoords=("data", "axes fraction"),
            xytext=(5 if right else -5, 72 * (0.1 + _ROW * row)),
            textcoords="offset points",
            ha="left" if right else "right",
            fontsize=11,
            color=mark.colour,
            bbox=_PAPER,
            zorder=7,
        )


def _title(findings: Findings) -> str:
    if findings.received != findings.sent or findings.missing:
        return f"{findings.received:,} of {findings.sent:,} flights arrive: records are missing or repeated"
    what = (
        "a member joins and another is killed" if not findings.consume_outages else "a member and two nodes are killed"
    )
    return f"All {findings.sent:,} flights arrive, although {what}"


class Span(NamedTuple):
    """The time axis of the lanes: seconds of its zero since the start, its length, and its scale."""

    zero: float
    end: float
    seconds_an_inch: float


def _draw_lane(
    axis: Any,
    place: int,
    ownerships: Sequence[Ownership],
    batches: Sequence[Delivered],
    colours: dict[str, str],
    span: Span,
) -> None:
    previous: Ownership | None = None
    for owned in sorted(ownerships, key=lambda owned: owned.since):
        until = min(span.end, span.end if owned.until is None else owned.until - span.zero)
        since = owned.since - span.zero
        if until <= since:
            continue
        colour = colours[owned.member]
        axis.barh(place, until - since, _LANE, since, color=colour, alpha=0.22, linewidth=0)
        for first, last in active_times([batch.at - span.zero for batch in batches if batch.member == owned.member]):
            left, right = max(first, since), min(last, until)
            if right > left:
                axis.barh(place, right - left, _LANE, left, color=colour, linewidth=0)
        if previous is None or previous.member != owned.member:
            text = owned.member
            if previous is not None and previous.until is not None:
                gap = owned.since - previous.until
                if gap > 0.5 * span.seconds_an_inch:
                    middle = owned.since - gap / 2 - span.zero
                    words = "no owner\n" if gap > 0.85 * span.seconds_an_inch else ""
                    style = {
                        "va": "center",
                        "ha": "center",
                        "fontsize": 11,
                        "color": _FAULT,
                        "bbox": _PAPER,
                        "zorder": 6,
                    }
                    axis.text(middle, place, f"{words}{gap:.1f} s", **style)
                else:
                    text += f", after {gap:.1f} s"
            _label(axis, place, since, text, span, colour)
        previous = owned


def _label(axis: Any, place: int, since: float, text: str, span: Span, colour: str) -> None:
    """Write a member's name where its time begins; near the right edge, so that it ends there."""
    needed = len(text) * _CHARACTER * span.seconds_an_inch
    axis.text(
        max(0.0, min(since + 0.1 * span.seconds_an_inch, span.end - needed)),
        place,
        text,
        va="center",
        fontsize=11,
        fontweight="bold",
        color="white",
        bbox={"facecolor": colour, "linewidth": 0, "boxstyle": "round,pad=0.2"},
        zorder=5,
    )


def active_times(batches: Sequence[float]) -> list[tuple[float, float]]:
    """Join batches that follow each other within `_STEADY` seconds: first and last time of each run of them."""
    runs: list[tuple[float, float]] = []
    for at in batches:
        if runs and at - runs[-1][1] <= _STEADY:
            runs[-1] = runs[-1][0], at
        else:
            runs.append((at, at))
    return [(first, last + 0.2) for first, last in runs]


def _rows_of_labels(marks: Sequence[Mark], end: float) -> list[int]:
    """Choose a row for each label above the lanes, so that none runs into another."""
    free: list[float] = []
    rows = []
    for mark in marks:
        length = len(mark.text) * 0.082 * end / 7.85
        left = mark.at if mark.at < end * _TURN else mark.at - length
        row = next((row for row, until in enumerate(free) if until + 0.02 * end < left), len(free))
        if row == len(free):
            free.append(0.0)
        free[row] = left + length
        rows.append(row)
    return rows


def draw_outages(findings: Findings) -> Any:
    """Return a matplotlib figure: records a second while nodes are down, of the producer and of the group."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7.6))
    produced, consumed = (figure.add_axes((0.105, bottom / 7.6, 0.865, _RATES / 7.6)) for bottom in (4.25, 0.65))
    acknowledged = {partition: _increments(counts) for partition, counts in findings.produced.items()}
    handled = sorted((batch.at, batch.count) for batch in findings.delivered)
    pauses = [pause for outage in findings.produce_outages if (pause := longest_pause_of(outage, acknowledged))]
    everything = sorted(record for records in acknowledged.values() for record in records)
    _draw_rate(produced, "Producer: records acknowledged a second", everything, findings.produce_outages)
    for pause in pauses:
        _draw_pause(produced, pause, f"partition {pause.partition}\nwaits {pause.seconds:.1f} s")
    _draw_rate(consumed, "Group: records handled a second", handled, findings.consume_outages)
    stops = [pause for outage in findings.consume_outages if (pause := longest_pause_of(outage, {0: handled}))]
    stops = [pause for pause in stops if pause.seconds > _STEADY]
    for pause in stops:
        _draw_pause(consumed, pause, f"nothing for\n{pause.seconds:.1f} s")
    produced.set_xlabel("seconds since the first record was sent", fontsize=11, color=_QUIET)
    consumed.set_xlabel("seconds since the members were started", fontsize=11, color=_QUIET)
    killed = len(findings.produce_outages) + len(findings.consume_outages)
    lost = "no record is lost" if findings.received == findings.sent else "records are missing"
    waits = f"a partition waits {max((pause.seconds for pause in pauses), default=0.0):.1f} s"
    if stops:
        waits += f", the group {max(pause.seconds for pause in stops):.1f} s"
    title = f"{killed} nodes are killed in turn: {lost}; {waits}"
    figure.text(0.012, 1 - 0.34 / 7.6, title, fontsize=14, fontweight="bold", color=_TEXT)
    legend = "Grey: a node is down, from SIGKILL until it has started again. Red: the longest wait meanwhile."
    figure.text(0.012, 1 - 0.66 / 7.6, legend, fontsize=11, color=_QUIET)
    return figure


def _increments(counts: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return how many records came at each time, from the sums until then."""
    return [(at, count - before) for (at, count), (_, before) in zip(counts, [(0.0, 0), *counts], strict=False)]


class Pause(NamedTuple):
    """A time in which a partition has no records."""

    partition: int
    first: float
    last: float

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.last - self.first


def longest_pause_of(outage: Outage, records: Mapping[int, Sequence[tuple[float, int]]]) -> Pause | None:
    """Return the longest pause of a partition that begins while a node is down, or has begun when it is killed."""
    end = outage.at + 10 if outage.restarted_at is None else outage.restarted_at
    pauses = [
        Pause(partition, first, last)
        for partition, found in records.items()
        for (first, _), (last, _) in pairwise(found)
        if last > outage.at and first < end
    ]
    return max(pauses, key=lambda pause: pause.seconds, default=None)


def _draw_pause(axis: Any, pause: Pause, text: str) -> None:
    top, end = axis.get_ylim()[1], axis.get_xlim()[1]
    axis.axvspan(pause.first, pause.last, color=_FAULT, alpha=0.2, linewidth=0)
    wide = end / 8.8  # an inch
    style: dict[str, Any] = {"va": "center", "fontsize": 11, "fontweight": "bold", "color": _FAULT, "zorder": 6}
    if pause.seconds > 1.2 * wide or pause.last + 1.2 * wide > end:
        axis.text((pause.first + pause.last) / 2, top * 0.55, text, ha="center", bbox=_PAPER, **style)
    else:
        axis.text(pause.last + 0.08 * wide, top * 0.55, text, ha="left", bbox=_PAPER, **style)


def _draw_rate(axis: Any, title: str, records: Sequence[tuple[float, int]], outages: Sequence[Outage]) -> None:
    end = max((at for at, _ in records), default=1.0)
    width = max(_BIN, round(end / 40))
    sums = [0.0] * (int(end / width) + 2)
    for at, count in records:
        sums[int(at / width)] += count / width
    places = [place * width for place in range(len(sums))]
    axis.fill_between(places, sums, step="post", color=_RATE, alpha=0.75, linewidth=0)
    axis.set_ylim(0, max(sums) * 1.05 or 1.0)
    axis.set_xlim(0, end)
    marks = [Mark(outage.at, outage.what, _FAULT) for outage in outages]
    rows = _rows_of_labels(marks, end)
    for outage in outages:
        until = end if outage.restarted_at is None else outage.restarted_at
        axis.axvspan(outage.at, until, color="#000000", alpha=0.12, linewidth=0)
    _draw_marks(axis, marks, rows, end, _RATES)
    axis.set_title(title, loc="left", fontsize=12, color=_TEXT, pad=10 + 72 * _ROW * (max(rows, default=-1) + 1))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _quiet_frame(axis)


def _quiet_frame(axis: Any) -> None:
    axis.tick_params(labelsize=11, length=0, colors=_TEXT)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
