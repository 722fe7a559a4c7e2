"""Reads the metrics of a broker's endpoint that the console charts. Pure.

The names are those of the JMX exporter's rules for Kafka, which this package's brokers use as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Charted:
    """A chart of one value of each broker: the sum of a metric's lines that ``wanted`` accepts, times ``factor``."""

    key: str
    title: str
    unit: str
    metric: str
    counter: bool = False
    wanted: Callable[[Labels], bool] = lambda labels: True
    factor: float = 1.0


def _p99(request: str) -> Callable[[Labels], bool]:
    return lambda labels: labels.get("request") == request and labels.get("quantile") == "0.99"


_IDLE: Final = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REQUESTS: Final = "kafka_network_requestmetrics_"


def _error(labels: Labels) -> bool:
    return labels.get("error") != "NONE"


def _whole_broker(labels: Labels) -> bool:
    return "topic" not in labels


CHARTED: Final = (
    Charted("bytes-in", "Bytes in", "bytes/s", f"{_TOPICS}bytesin_total", True, _whole_broker),
    Charted("bytes-out", "Bytes out", "bytes/s", f"{_TOPICS}bytesout_total", True, _whole_broker),
    Charted("requests", "Requests", "1/s", f"{_REQUESTS}requests_total", True),
    Charted(
        "errors", "Errors in responses", "1/s", f"{_REQUESTS}errors_total", True, _error
    ),
    Charted("produce-time", "Produce, 99 % within", "ms", f"{_REQUESTS}totaltimems", False, _p99("Produce")),
    Charted("fetch-time", "FetchConsumer, 99 % within", "ms", f"{_REQUESTS}totaltimems", False, _p99("FetchConsumer")),
    Charted(
        "idle", "Request handlers idle", "%", _IDLE, factor=100
    ),
    Charted("connections", "Connections", "", "kafka_server_socket_server_metrics_connection_count"),
)  # fmt: skip


def readings(text: str) -> dict[str, float]:
    """Return the value of each chart by its key; a chart without a line in the text is absent.

    Lines that are not in the format are skipped, because exporters differ.
    """
    wanted: dict[str, list[Charted]] = {}
    for one in CHARTED:
        wanted.setdefault(one.metric, []).append(one)
    found: dict[str, float] = {}
    for line in text.split("\n"):  # names of clients may have other line breaks of Unicode
        charts = wanted.get(line.partition("{")[0].partition(" ")[0])
        if charts is None:
            continue
        parsed = _LINE.fullmatch(line.strip())
        if parsed is None:
            continue
        labels = dict(_LABEL.findall(parsed[2] or ""))
        try:
            value = float(parsed[3])
        except ValueError:
            continue
        if math.isfinite(value):
            for one in charts:
                if one.wanted(labels):
                    found[one.key] = found.get(one.key, 0.0) + value * one.factor
    return found
