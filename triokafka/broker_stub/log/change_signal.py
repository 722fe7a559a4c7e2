"""Tells watchers of a log and its partition about the next change, once each."""

from __future__ import annotations

from typing import Protocol


class ChangeWatcher(Protocol):
    """Something that has to look at a partition again after a change."""

    def changed(self) -> None:
        """Handle a change. The watch is over; the state may be in the middle of the change."""


class ChangeSignal:
    """The watchers of one log and of the partition that has it.

    A watch ends with its first change. A partition in use therefore has no watchers, and a change costs it nothing.
    """

    __slots__ = ("_watchers",)

    def __init__(self) -> None:
        self._watchers: dict[ChangeWatcher, None] = {}

    def __len__(self) -> int:
        return len(self._watchers)

    def watch(self, watcher: ChangeWatcher) -> None:
        """Call ``watcher`` at the next change."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: ChangeWatcher) -> None:
        """Do not call ``watcher``; do nothing if it does not watch."""
        self._watchers.pop(watcher, None)

    def notify(self) -> None:
        """Call the watchers, after a change of anything that a fetch reads or compares."""
        if self._watchers:
            watchers, self._watchers = self._watchers, {}
            for watcher in watchers:
                watcher.changed()
