"""The interface of a listening endpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod

from triokafka.world.stream import Stream


class Listener(ABC):
    """A listening endpoint."""

    @abstractmethod
    async def accept(self) -> Stream:
        """Wait for the next connection.

        Raises `OSError` when the process has no file descriptor left, and `trio.ClosedResourceError` after `close`.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop listening at once; a second call does nothing."""

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on; the port is the real one when 0 was asked for."""
