"""Plans of offset resets: parsing of partitions, times and plan files, and limits of offsets. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import click

from triokafka.cli.parameter_types import INT32, INT64, whole_number
from triokafka.structs import TopicPartition

_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)
_WITHOUT_GROUP: Final = 3
_WITH_GROUP: Final = 4

Plan = dict[str, dict[TopicPartition, int]]
"""New offsets by group and partition."""


class Scope(NamedTuple):
    """A topic to reset: some of its partitions, or all of them (None)."""

    topic: str
    partitions: tuple[int, ...] | None


def parse_scope(text: str) -> Scope:
    """Parse ``orders`` or ``orders:0,2``."""
    topic, separator, numbers = text.partition(":")
    if not separator:
        return Scope(topic, None)
    parts = [whole_number(part, INT32) for part in numbers.split(",")]
    if not topic or None in parts:
        raise click.UsageError(f"--topic takes a topic, or a topic with partitions such as orders:0,2, not {text!r}.")
    return Scope(topic, tuple(dict.fromkeys(part for part in parts if part is not None)))


def parse_datetime(text: str) -> int:
    """Parse ``2026-11-21T10:00:00.000`` to milliseconds since 1970; without a zone it is UTC, as in Kafka's tool."""
    try:
        if "T" not in text:
            raise ValueError
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-datetime takes YYYY-MM-DDThh:mm:ss.sss, not {text!r}.") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """Parse ``P1DT2H30M`` (ISO 8601) to milliseconds."""
    found = _DURATION.fullmatch(text.strip())
    parts = {name: value for name, value in found.groupdict().items() if value} if found else {}
    sign = parts.pop("sign", "")
    if not parts or text.strip()[-1] in "Tt":
        raise click.UsageError(f"--by-duration takes PnDTnHnMnS, such as PT12H or P7D, not {text!r}.")
    try:
        length = timedelta(**{name: float(value.replace(",", ".")) for name, value in parts.items()})
    except OverflowError:
        raise click.UsageError(f"--by-duration: {text!r} is too long.") from None
    return length // timedelta(milliseconds=1) * (-1 if sign == "-" else 1)


def parse_plan(text: str, source: str, groups: list[str] | None) -> Plan:
    """Parse lines of topic, partition and offset (for one group), or of group, topic, partition and offset."""
    plan: Plan = {}
    for line, row in _rows(text, source):
        if not any(cell.strip() for cell in row):
            continue
        cells = [cell.strip() for cell in row]
        where = f"{source}, line {line}"
        if len(cells) == _WITHOUT_GROUP and groups is not None and len(groups) == 1:
            cells = [groups[0], *cells]
        elif len(cells) == _WITHOUT_GROUP:
            raise click.UsageError(f"{where}: a plan for several groups needs lines of group,topic,partition,offset.")
        if len(cells) != _WITH_GROUP:
            raise click.UsageError(f"{where}: expected topic,partition,offset or group,topic,partition,offset.")
        group, topic = cells[:2]
        partition, offset = whole_number(cells[2], INT32), whole_number(cells[3], INT64)
        if partition is None or offset is None:
            raise click.UsageError(f"{where}: partition and offset must be numbers from 0 up.")
        plan.setdefault(group, {})[TopicPartition(topic, partition)] = offset
    if not plan:
        raise click.UsageError(f"{source} has no offsets.")
    return plan


def _rows(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield lines of CSV with their numbers from 1; any system's line ending is accepted."""
    rows = csv.reader(io.StringIO(text, newline=None))
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise click.UsageError(f"{source}, line {rows.line_num}: invalid CSV: {error}.") from None
        yield rows.line_num, row


def plan_text(plan: Mapping[str, Mapping[TopicPartition, int]], *, with_groups: bool) -> str:
    """Format a plan as lines that `parse_plan` reads."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, offsets in plan.items():
        for partition, offset in sorted(offsets.items()):
            writer.writerow([*([group] if with_groups else []), *partition, offset])
    return out.getvalue()


def within_limits(
    wanted: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return offsets limited to the logs' ranges, and a sentence about each limited offset."""
    taken: dict[TopicPartition, int] = {}
    sentences: list[str] = []
    for partition, offset in wanted.items():
        taken[partition] = min(max(offset, starts[partition]), ends[partition])
        if taken[partition] != offset:
            side = "after the end of" if offset > taken[partition] else "before the beginning of"
            sentences.append(f"{offset} is {side} {partition}: using {taken[partition]}.")
    return taken, sentences


def chosen_way(options: Mapping[str, object]) -> str:
    """Return the one target option that was given; none or several are a usage error."""
    given = [name for name, value in options.items() if value is not None and value is not False]
    if len(given) != 1:
        names = ", ".join(_flags(options))
        raise click.UsageError(
            f"No target: give one of {names}." if not given else f"{' and '.join(_flags(given))} exclude each other."
        )
    return given[0]


def _flags(names: Iterable[str]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in names]
