"""Answers of a cluster that several requests of the page share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

import trio

from triokafka.errors import KafkaError, raisable_copy

T = TypeVar("T")

_FRESH: Final = 1.0


class _Answer(NamedTuple):
    at: float
    took: float
    value: Any

    def serves(self, now: float, *, being_renewed: bool) -> bool:
        """Whether it may still be shown."""
        return now - self.at <= max(_FRESH, (20 if being_renewed else 10) * self.took)

    def is_old(self, now: float) -> bool:
        """Whether the answer should be renewed before it expires."""
        return now - self.at > max(_FRESH, 5 * self.took)


class _Failure(NamedTuple):
    at: float
    error: KafkaError


class AnswerCache:
    """Reuses each answer for a second, or for ten times as long as it took: in a large cluster, answers take long.

    Args:
        now: returns the present time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: dict[str, _Answer] = {}
        self._locks: dict[str, trio.Lock] = {}
        self._failures: dict[str, _Failure] = {}

    async def get(self, key: str, ask: Callable[[], Awaitable[T]], *, renew: bool = False) -> T:
        """Return a fresh answer; concurrent requests for it share one call of ``ask`` and its failure. There are few
        keys, and users cannot choose them.

        With ``renew`` the answer is renewed before it expires, and concurrent requests get the previous answer. If a
        caller renews it regularly, only the first request waits.
        """
        lock = self._locks.setdefault(key, trio.Lock())
        known, now = self._known.get(key), self._now()
        if known is not None and known.serves(now, being_renewed=lock.locked()) and not (renew and known.is_old(now)):
            fresh: T = known.value
            return fresh
        async with lock:
            failure = self._failures.get(key)
            if failure is not None and failure.at > now:
                raise raisable_copy(failure.error)  # this request waited for the same question
            known, now = self._known.get(key), self._now()
            if known is None or not known.serves(now, being_renewed=False) or (renew and known.is_old(now)):
                try:
                    value = await ask()
                except KafkaError as error:
                    self._failures[key] = _Failure(self._now(), error)
                    raise
                known = self._known[key] = _Answer(self._now(), self._now() - now, value)
            answer: T = known.value
            return answer

    def known(self, key: str) -> Any:
        """Return the answer while it is fresh, without asking; None if there is none."""
        known, lock = self._known.get(key), self._locks.get(key)
        fresh = known is not None and known.serves(self._now(), being_renewed=lock is not None and lock.locked())
        return known.value if known is not None and fresh else None

    def forget(self) -> None:
        """Forget all answers, because something was changed."""
        self._known.clear()
