"""What a client tells those who watch it: connections, requests, metadata, batches, fetches, groups, failure.

`Hooks` is for users to override; `HookChain` calls several of them and lets none of them do harm. Events are per
connection, request or batch, never per record. Nothing here waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from triokafka.structs import Node, OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)


class MetadataSummary(NamedTuple):
    """What a snapshot of the cluster's metadata holds, in numbers.

    ``version`` counts the refreshes of this client. ``leaderless`` is how many of the ``partitions`` have no leader
    now; ``controller_id`` is -1 and ``cluster_id`` None when the broker did not say.
    """

    version: int
    brokers: int
    topics: int
    partitions: int
    leaderless: int
    controller_id: int
    cluster_id: str | None


class Hooks:
    """Override what you want to know of, and give an object of your class as ``hooks=`` to any client.

    All methods are plain functions that run in the client's own tasks, in the thread of the event loop: they must be
    quick and must not block. What one of them raises is logged and disturbs nobody. Every method does nothing here, so
    ``super()`` need not be called. A ``node`` with an id below 0 is a bootstrap server. Later versions may add methods.
    """

    def on_connect(self, node: Node, address: str, seconds: float, error: Exception | None) -> None:
        """An attempt to connect to a broker has ended, ``seconds`` after it began.

        ``error`` is None when the connection is ready for requests, handshakes included; else it names every address
        tried and why. ``address`` is ``host:port`` of the connection's other end, and on failure the broker's name.
        """

    def on_disconnect(self, node: Node, error: Exception) -> None:
        """A connection that was ready has ended; ``error`` says why, also when this client closed it."""

    def on_request(self, node: Node, api: str, version: int, size: int) -> None:
        """A request was handed to a connection: ``api`` is its name, as in ``"Produce"``; ``size`` counts the bytes on
        the wire."""

    def on_response(self, node: Node, api: str, size: int, seconds: float, error: Exception | None) -> None:
        """The answer to a request has come, or never will.

        ``seconds`` is the time since `on_request`; ``size`` the bytes of the answer, 0 when there is none. ``error`` is
        None, or why there is no answer; error codes inside of an answer are not told here. A request that gets no
        answer by design (``acks=0``) is told of only when its connection ends before it is written.
        """

    def on_throttle(self, node: Node, seconds: float) -> None:
        """A broker's quota is used up: nothing will be sent to it for so many seconds (KIP-219)."""

    def on_metadata(self, summary: MetadataSummary) -> None:
        """The metadata was refreshed, or a new leader taken from an error reply (KIP-951)."""

    def on_batch_sealed(self, topic_partition: TopicPartition, records: int, size: int, compressed_size: int) -> None:
        """A batch takes no more records and is as it will be sent; sizes are bytes before and after compression."""

    def on_batch_retried(self, topic_partition: TopicPartition, records: int, attempt: int, error: Exception) -> None:
        """The batch's attempt number ``attempt`` (from 1) has failed with ``error``, and it will be sent again."""

    def on_batch_acknowledged(
        self, topic_partition: TopicPartition, records: int, size: int, base_offset: int, attempts: int, seconds: float
    ) -> None:
        """The broker has a batch of ``size`` bytes, as was asked for with ``acks``.

        ``base_offset`` is -1 when the broker did not say. ``seconds`` is the time since the batch was begun.
        """

    def on_batch_failed(self, topic_partition: TopicPartition, records: int, error: Exception) -> None:
        """The records of a batch will not be sent again; their deliveries raise ``error``."""

    def on_fetch(self, node: Node, partitions: int, size: int, seconds: float) -> None:
        """A broker has answered a fetch with ``size`` bytes of records of so many partitions, 0 when there were none.

        ``seconds`` is the time since the request was made; brokers hold a fetch back until there is something.
        """

    def on_heartbeat(self, group_id: str, seconds: float, error: Exception | None) -> None:
        """The coordinator has answered a heartbeat, ``seconds`` after it was sent; or ``error`` says why it has not, or
        what it says is wrong."""

    def on_heartbeat_late(self, group_id: str, seconds: float) -> None:
        """A heartbeat is so many seconds late, because code in some task of the program has blocked the Trio loop."""

    def on_rebalance_started(self, group_id: str, reason: str) -> None:
        """The assignment is about to change, and the consumer begins to give up and to join."""

    def on_partitions_revoked(self, group_id: str, partitions: Sequence[TopicPartition], seconds: float) -> None:
        """These were given up, ``seconds`` after that began; what was finished was committed, and the listener told."""

    def on_partitions_lost(self, group_id: str, partitions: Sequence[TopicPartition]) -> None:
        """These may have other owners already: the group went on without this member."""

    def on_partitions_assigned(self, group_id: str, partitions: Sequence[TopicPartition], seconds: float) -> None:
        """The rebalance is over, ``seconds`` after it was heard of, and has brought these partitions.

        Those that stay are not named, unless an eager assignor has dealt all anew.
        """

    def on_commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        seconds: float,
        error: Exception | None,
    ) -> None:
        """A commit has succeeded, or failed with ``error``, ``seconds`` after its turn came; retries are part of it."""

    def on_client_failed(self, error: Exception) -> None:
        """The client cannot go on: every later call raises. Called once."""


EVENTS: Final = tuple(name for name in vars(Hooks) if name.startswith("on_"))
"""Names of all hooks."""


class HookChain(Hooks):
    """Several `Hooks` as one that never raises; false when there is none, so that one truth test skips an event."""

    def __init__(self, hooks: Sequence[Hooks] = ()) -> None:
        self._hooks = tuple(hooks)
        if not self._hooks:
            return
        for name in EVENTS:
            # Only who overrides a method is called: the events that nobody listens to stay cheap.
            listeners = [
                getattr(hook, name)
                for hook in self._hooks
                if getattr(type(hook), name, None) is not getattr(Hooks, name) or name in vars(hook)
            ]
            if listeners:
                setattr(self, name, _guarded(name, listeners))

    def __bool__(self) -> bool:
        return bool(self._hooks)


def _guarded(name: str, listeners: list[Callable[..., None]]) -> Callable[..., None]:
    def call(*args: Any) -> None:
        for listener in listeners:
            try:
                listener(*args)
            except Exception:
                logger.exception("the hook %s of %r failed", name, getattr(listener, "__self__", listener))

    return call


NO_HOOKS: Final = HookChain()
"""The chain of nobody."""
