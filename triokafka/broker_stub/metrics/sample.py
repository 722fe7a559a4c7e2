"""The value of one metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Sample(NamedTuple):
    """The value of a metric. ``statistic`` distinguishes values of one name: Count, Sum, Max, or a quantile."""

    name: str
    tags: Mapping[str, str]
    value: float
    statistic: str = ""
