"""A gate that tasks wait at while a fault keeps it shut."""

from __future__ import annotations

import trio


class Gate:
    """Open at first."""

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._opened.set()

    @property
    def is_open(self) -> bool:
        """Whether tasks pass without waiting."""
        return self._opened.is_set()

    def shut(self) -> None:
        """Have tasks wait until `open`."""
        if self._opened.is_set():
            self._opened = trio.Event()

    def open(self) -> None:
        """Let all tasks pass."""
        self._opened.set()

    async def wait(self) -> None:
        """Wait while the gate is shut."""
        while not self._opened.is_set():
            await self._opened.wait()


class BothGates:
    """Open while two gates are open."""

    def __init__(self, one: Gate, other: Gate) -> None:
        self._one = one
        self._other = other

    @property
    def is_open(self) -> bool:
        """Whether tasks pass without waiting."""
        return self._one.is_open and self._other.is_open

    async def wait(self) -> None:
        """Wait while one of the gates is shut."""
        while not self.is_open:
            await self._one.wait()
            await self._other.wait()
