"""Hooks: a client's events about connections, requests, metadata, batches, fetches, groups and failure.

Users override methods of `Hooks`; `HookChain` calls several of them, and catches their exceptions. Events are per
connection, request or batch, never per record. No method waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from triokafka.structs import Node, OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)


class MetadataSummary(NamedTuple):
    """A snapshot of the cluster's metadata, in numbers.

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
    """Override the events that you want, and pass an object of your class as ``hooks=`` to any client.

    All methods are plain functions that run in the client's own tasks, in the thread of the event loop: they must be
    quick and must not block. Their exceptions are logged, and do not affect the client. Every method here is empty, so
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
        """The response to a request has come, or will not come.

        ``seconds`` is the time since `on_request`; ``size`` is the size of the response in bytes, 0 without one.
        ``error`` is the reason why no response came, else None; it does not cover error codes inside a response. A
        request without a response (``acks=0``) causes this event only when its connection ends before it is written.
        """

    def on_throttle(self, node: Node, seconds: float) -> None:
        """A quota of the broker is exceeded: the client sends it nothing for ``seconds`` (KIP-219)."""

    def on_metadata(self, summary: MetadataSummary) -> None:
        """The metadata was refreshed, or a new leader was taken from an error response (KIP-951)."""

    def on_batch_sealed(self, topic_partition: TopicPartition, records: int, size: int, compressed_size: int) -> None:
        """A batch is complete and ready to send; sizes are bytes before and after compression."""

    def on_batch_retried(self, topic_partition: TopicPartition, records: int, attempt: int, error: Exception) -> None:
        """Attempt number ``attempt`` (from 1) to send the batch failed with ``error``; the producer will retry."""

    def on_batch_acknowledged(
        self, topic_partition: TopicPartition, records: int, size: int, base_offset: int, attempts: int, seconds: float
    ) -> None:
        """The broker acknowledged a batch of ``size`` bytes, as ``acks`` requires.

        ``base_offset`` is -1 when the broker did not say. ``seconds`` is the time since the batch was begun.
        """

    def on_batch_failed(self, topic_partition: TopicPartition, records: int, error: Exception) -> None:
        """The records of a batch will not be sent again; their deliveries raise ``error``."""

    def on_fetch(self, node: Node, partitions: int, size: int, seconds: float) -> None:
        """A broker has answered a fetch with ``size`` bytes of records of several partitions; 0 without records.

        ``seconds`` is the time since the request was made; brokers delay the response until data is available.
        """

    def on_heartbeat(self, group_id: str, seconds: float, error: Exception | None) -> None:
        """The coordinator answered a heartbeat, ``seconds`` after it was sent.

        ``error`` is the coordinator's error, or the reason why no response came, else None.
        """

    def on_heartbeat_late(self, group_id: str, seconds: float) -> None:
        """A heartbeat is late, in seconds, because code in some task of the program has blocked the Trio loop."""

    def on_rebalance_started(self, group_id: str, reason: str) -> None:
        """A rebalance begins: the consumer will revoke partitions and rejoin."""

    def on_partitions_revoked(self, group_id: str, partitions: Sequence[TopicPartition], seconds: float) -> None:
        """The consumer revoked these partitions, in ``seconds``, commits and the listener's callback included."""

    def on_partitions_lost(self, group_id: str, partitions: Sequence[TopicPartition]) -> None:
        """The consumer lost these partitions: the group removed this member, and may have given them to others."""

    def on_partitions_assigned(self, group_id: str, partitions: Sequence[TopicPartition], seconds: float) -> None:
        """The rebalance ended, ``seconds`` after the consumer noticed it, and added these partitions.

        Retained partitions are not included, unless an eager assignor assigned all again.
        """

    def on_commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        seconds: float,
        error: Exception | None,
    ) -> None:
        """A commit succeeded, or failed with ``error``, after ``seconds``, retries included."""

    def on_client_failed(self, error: Exception) -> None:
        """The client failed: every later call raises. Called once."""


EVENTS: Final = tuple(name for name in vars(Hooks) if name.startswith("on_"))
"""Names of all hooks."""


class HookChain(Hooks):
    """Several `Hooks` as one that never raises. An empty chain is false, so that one truth test skips an event."""

    def __init__(self, hooks: Sequence[Hooks] = ()) -> None:
        self._hooks = tuple(hooks)
        if not self._hooks:
            return
        for name in EVENTS:
            # Only overridden methods are called, so that unused events stay cheap.
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
"""The empty chain."""
