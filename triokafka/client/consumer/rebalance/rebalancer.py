"""Who decides what a consumer reads, unless its user does: a group, under one of two protocols, or it alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from triokafka.assignors import resolve_assignors
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.commits import Committer
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.membership.classic_member import ClassicMember, GroupConfig
from triokafka.client.consumer.membership.classic_membership import ClassicMembership
from triokafka.client.consumer.membership.consumer_protocol_member import ConsumerGroupConfig, ConsumerProtocolMember
from triokafka.client.consumer.membership.consumer_protocol_membership import ConsumerProtocolMembership
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.client.consumer.membership.membership import GroupMembership
from triokafka.client.consumer.membership.topic_names import TopicNames
from triokafka.client.consumer.rebalance.classic_rebalance import ClassicRebalance
from triokafka.client.consumer.rebalance.consumer_protocol_rebalance import ConsumerProtocolRebalance
from triokafka.client.consumer.rebalance.groupless_assignment import GrouplessAssignment
from triokafka.client.consumer.subscription import SubscriptionState
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.backoff import Backoff
from triokafka.network.network_client import NetworkClient

_FIRST_INTERVAL = 5.0
"""Seconds between heartbeats until the coordinator has said what it wants."""


class Rebalancer(Protocol):
    """What the wait for records asks of whoever decides the assignment.

    ``fresh_after`` is the version of the metadata that is too old to match patterns with.
    """

    listener: object
    fresh_after: int

    @property
    def settling(self) -> bool:
        """Whether partitions are about to be given up, so that nothing may be handed out."""

    @property
    def telling(self) -> bool:
        """Whether the listener has still something to hear: it may yet say where to begin."""

    async def step(self) -> None:
        """Do what can be done now; waits for the listener only. If cancelled, the next call goes on from there."""

    def abandon(self) -> None:
        """The subscription ends."""

    async def drain(self) -> None:
        """Tell the listener what it has not heard yet."""


def make_rebalancer(
    options: ConsumerOptions,
    network: NetworkClient,
    subscription: SubscriptionState,
    committer: Committer,
    tasks: BackgroundTasks,
    failures: FailureTracker,
    *,
    progress: Callable[[], int],
    on_change: Callable[[], None],
    on_assignment: Callable[[], None],
) -> tuple[GroupMembership | None, Rebalancer]:
    """The membership that the options ask for, None without a ``group_id``, and the assigner that goes with it."""
    if options.group_id is None:
        return None, GrouplessAssignment(network, subscription, on_assignment)
    if options.group_protocol == "classic":
        classic_config = GroupConfig(
            group_id=options.group_id,
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            group_instance_id=options.group_instance_id,
            rack_id=options.client_rack or None,
        )
        classic = ClassicMembership(
            options,
            network,
            subscription,
            ClassicMember(classic_config, resolve_assignors(options.partition_assignment_strategy)),
            tasks,
            failures,
            progress=progress,
            on_change=on_change,
        )
        return classic, ClassicRebalance(network, subscription, classic, committer, on_assignment)
    config = ConsumerGroupConfig(
        group_id=options.group_id,
        rebalance_timeout_ms=options.max_poll_interval_ms,
        group_instance_id=options.group_instance_id,
        rack_id=options.client_rack or None,
        server_assignor=options.group_remote_assignor,
    )
    clock = HeartbeatClock(
        interval=_FIRST_INTERVAL,
        session_timeout=float("inf"),  # only the broker knows
        max_poll_interval=options.max_poll_interval_ms / 1000,
    )
    backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)
    membership = ConsumerProtocolMembership(
        options,
        network,
        subscription,
        ConsumerProtocolMember(config, str(network.world.uuid()), clock, backoff),
        tasks,
        failures,
        progress=progress,
        on_change=on_change,
    )
    names = TopicNames(network, backoff, tasks, failures, on_change)
    return membership, ConsumerProtocolRebalance(network, subscription, membership, names, committer, on_assignment)
