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
        """Stop listening, without waiting. A second call does nothing."""

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]:
        """The host and the port; with port 0 requested, the port that the system chose."""
