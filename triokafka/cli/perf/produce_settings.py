"""The settings of ``triokafka perf produce``, which its comparison of clients shares."""

from __future__ import annotations

from typing import Any, NamedTuple


class Settings(NamedTuple):
    """Options of a run, except the destination."""

    topic: str
    records: int
    size: int
    rate: float | None
    payload_file: str | None
    compression: str
    acks: str
    linger_ms: float
    batch_size: int
    api: str
    partition: int | None
    more: dict[str, Any]
    as_json: bool
    file: dict[str, Any]
    """Options of a properties file; those of the command line override them."""
    payload_delimiter: str
    numbers: bool
    """Whether the values are numbers in ascending order."""
    with_metrics: bool
    interval_ms: float
    transaction_ms: float | None
