"""Constructs the parts that decide what a consumer reads: a group under one of two protocols, or no group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triokafka.assignors import resolve_assignors
from triokafka.backoff import Backoff
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.committer import Committer
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.membership.classic_heartbeat import ClassicHeartbeat
from triokafka.client.consumer.membership.classic_join import ClassicJoin
from triokafka.client.consumer.membership.classic_member import ClassicMember, GroupConfig
from triokafka.client.consumer.membership.classic_membership import ClassicMembership
from triokafka.client.consumer.membership.consumer_protocol_heartbeat import ConsumerProtocolHeartbeat
from triokafka.client.consumer.membership.consumer_protocol_member import ConsumerGroupConfig, ConsumerProtocolMember
from triokafka.client.consumer.membership.consumer_protocol_membership import ConsumerProtocolMembership
from triokafka.client.consumer.membership.group_membership import GroupMembership, GroupProtocol
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.client.consumer.membership.heartbeat_loop import HeartbeatLoop, HeartbeatProtocol
from triokafka.client.consumer.membership.leader_assignment import LeaderAssignment
from triokafka.client.consumer.membership.leave_sender import LeaveSender
from triokafka.client.consumer.membership.membership_status import MembershipStatus
from triokafka.client.consumer.membership.poll_interval import PollInterval
from triokafka.client.consumer.membership.rebalance_timing import RebalanceTiming
from triokafka.client.consumer.membership.topic_names import TopicNames
from triokafka.client.consumer.rebalance.classic_rebalance import ClassicRebalance
from triokafka.client.consumer.rebalance.consumer_protocol_rebalance import ConsumerProtocolRebalance
from triokafka.client.consumer.rebalance.groupless_assignment import GrouplessAssignment
from triokafka.client.consumer.rebalance.partition_handover import PartitionHandover
from triokafka.client.consumer.rebalance.rebalancer import AssignmentSource, Rebalancer
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.hooks import NO_HOOKS
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.network_client import NetworkClient

_FIRST_INTERVAL: Final = 5.0
"""Seconds between heartbeats until the coordinator has named an interval (``group.consumer.heartbeat.interval.ms``)."""


def compose_group(
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
    """Return the membership for the options, None without a ``group_id``, and its rebalancer."""
    fresh_for = options.retry_backoff_ms / 1000
    if options.group_id is None:
        handover = PartitionHandover(subscription, RebalanceTiming("", network.world, NO_HOOKS), on_assignment)
        source: AssignmentSource = GrouplessAssignment(network, subscription, handover)
        return None, Rebalancer(network, subscription, source, handover, fresh_for=fresh_for)
    status = MembershipStatus(options.group_id, network, on_change)
    leave_sender = LeaveSender(status, tasks)
    handover = PartitionHandover(subscription, status.timing, on_assignment)
    poll_interval = PollInterval(options.max_poll_interval_ms / 1000)
    heartbeat: HeartbeatProtocol
    protocol: GroupProtocol
    if options.group_protocol == "classic":
        clock = HeartbeatClock(
            interval=options.heartbeat_interval_ms / 1000,
            session_timeout=options.session_timeout_ms / 1000,
        )
        classic_config = GroupConfig(
            group_id=options.group_id,
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            group_instance_id=options.group_instance_id,
            rack_id=options.client_rack or None,
        )
        member = ClassicMember(classic_config, resolve_assignors(options.partition_assignment_strategy))
        leader = LeaderAssignment(member, network, tasks, failures)
        join = ClassicJoin(options, network, subscription, member, leader, clock, status, tasks, failures)
        heartbeat = ClassicHeartbeat(options, network, member, clock, status, failures)
        protocol = ClassicMembership(network, member, join, status, leave_sender)
        source = ClassicRebalance(subscription, member, protocol, join, leader, committer, handover)
    else:
        clock = HeartbeatClock(
            interval=_FIRST_INTERVAL,
            session_timeout=float("inf"),  # set by the broker
        )
        config = ConsumerGroupConfig(
            group_id=options.group_id,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            group_instance_id=options.group_instance_id,
            rack_id=options.client_rack or None,
            server_assignor=options.group_remote_assignor,
        )
        backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)
        driven = ConsumerProtocolMember(config, str(network.world.uuid()), clock, backoff)
        heartbeat = beats = ConsumerProtocolHeartbeat(options, network, driven, status, leave_sender, failures)
        protocol = ConsumerProtocolMembership(network, subscription, driven, beats, status, leave_sender, failures)
        names = TopicNames(network, backoff, tasks, failures, on_change)
        keep_metadata_of = network.metadata.set_topics
        source = ConsumerProtocolRebalance(subscription, protocol, names, committer, handover, keep_metadata_of)
    leave = protocol.leave_after_max_poll_interval
    loop = HeartbeatLoop(
        heartbeat, leave, clock, poll_interval, status, network.world, network.hooks, failures, progress
    )
    membership = GroupMembership(protocol, clock, poll_interval, status, loop, leave_sender)
    return membership, Rebalancer(network, subscription, source, handover, fresh_for=fresh_for)
