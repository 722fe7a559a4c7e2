"""The limits of the console, by name: ``triokafka console --set search.max.records=1000000``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches

_SMALL = 1_000_000_000


@dataclass(frozen=True)
class ConsoleLimits:
    """Every bound of the console. The name of a field with dots for underscores is its configuration name."""

    max_connections: int = 500
    """Open connections of browsers; further ones are closed at once."""
    max_tails: int = 10
    """Live tails that run at a time."""
    max_sessions: int = 50
    """People who are logged in at a time."""
    session_idle_ms: int = 1_800_000
    """Time without requests after which a session ends."""
    login_max_failures: int = 10
    """Refused logins of one address within a minute, before further ones are refused without a check."""
    send_timeout_ms: int = 30_000
    """How long a browser may take to read a response before its connection is closed."""
    search_max_ms: int = 5_000
    """Duration of one search."""
    search_max_records: int = 200_000
    """Records that one search reads."""
    max_searches: int = 8
    """Searches that run at a time."""
    answer_max_ms: int = 20_000
    """Longest wait for a response of the cluster, unless the clients' options set it."""
    partial_max_ms: int = 4_000
    """Longest wait for brokers that do not answer, where the page shows the rest without them."""
    sample_interval_ms: int = 5_000
    """Time between two samples of metrics, lag and rebalances."""
    sampled_groups: int = 200
    """Groups whose lag and rebalances are sampled, those on screen first."""
    sampled_partitions: int = 2_000
    """Partitions whose end offsets are sampled for rates."""
    max_series: int = 400
    """Lines of all charts. Above it, the line that has had no value for the longest time is dropped."""
    max_samples: int = 360
    """Samples of each line and each group."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 1 <= getattr(self, field.name) <= _SMALL:
                raise ValueError(f"{_dotted(field.name)} must be from 1 to {_SMALL}")

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ConsoleLimits:
        """Return the limits with some of them set. Raises `ValueError` for unknown names and values."""
        known = {_dotted(field.name): field.name for field in fields(cls)}
        values: dict[str, int] = {}
        for name, text in settings.items():
            if name not in known:
                near = get_close_matches(name, known, 1)
                better = f"did you mean {near[0]}?" if near else f"they are {', '.join(known)}"
                raise ValueError(f"{name} is not a limit of the console; {better}")
            if not text.isascii() or not text.isdigit() or len(text) > 10:
                raise ValueError(f"{name} takes a number, not {text!r}")
            values[known[name]] = int(text)
        return cls(**values)


def _dotted(name: str) -> str:
    return name.replace("_", ".")
