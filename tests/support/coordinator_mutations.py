"""The rules of groups and offsets, each with a way to break it and the random test that must notice.

As in ``tests/support/mutations.py``, and applied by the same ``tests/test_mutations.py``.
"""

from __future__ import annotations

from tests.support.mutations import Mutation

_C = "triokafka/coordinator/"
_GROUPS = "tests/property/test_coordinator_groups.py::test_invariants_hold_in_random_schedules"
_CONSUMERS = "tests/property/test_consumer_group.py::test_invariants_hold_in_random_schedules"
_MIXED = "tests/property/test_mixed_groups.py::test_mixed_groups_survive_random_lives"
_OFFSETS = "tests/property/test_coordinator_offsets.py::test_offset_invariants_hold_in_random_schedules"
_TRANSACTIONS = "tests/property/test_transactional_offsets.py::test_transactional_offsets_survive_random_schedules"
_FAILURES = "tests/unit/coordinator/test_failures.py::"
_MIGRATION = "tests/unit/coordinator/test_migration.py::"

COORDINATOR_MUTATIONS: tuple[Mutation, ...] = tuple(
    Mutation(rule, _C + file, old, new, test)
    for rule, file, old, new, test in (
        # ---------------------------------------------------------------- runtime
        (
            "answers wait for their records to be committed",
            "runtime/coordinator_runtime.py",
            "        context.held.append(Held(context.end, effects",
            "        self._give(effects)\n        context.held.append(Held(context.end, effects",
            _OFFSETS,
        ),
        (
            "answers without records wait for the state that they depend on",
            "runtime/coordinator_runtime.py",
            "if not effects.appended and (committed or self._is_committed(",
            "if not effects.appended and (True or self._is_committed(",
            _CONSUMERS,
        ),
        (
            "unload fails held answers",
            "runtime/coordinator_runtime.py",
            "            waiting.extend(reply for reply, _ in item.effects.answers)\n",
            "            pass\n",
            _OFFSETS,
        ),
        (
            "unload fails parked requests",
            "group/group_shard.py",
            "                    waiting.append(member.join_reply)\n",
            "                    pass\n",
            _GROUPS,
        ),
        (
            "a late load is ignored",
            "runtime/coordinator_runtime.py",
            "            if known.leader_epoch >= leader_epoch:\n",
            "            if known.leader_epoch < 0:\n",
            _GROUPS,
        ),
        (
            "a late unload is ignored",
            "runtime/coordinator_runtime.py",
            "if known is None or (leader_epoch is not None and leader_epoch < known.leader_epoch):",
            "if known is None:",
            _GROUPS,
        ),
        (
            "a late commit times out",
            "runtime/coordinator_runtime.py",
            "                self._time_out(context, context.held.popleft())\n",
            "                context.held.popleft()\n",
            _GROUPS,
        ),
        (
            "readers see committed values",
            "runtime/journal.py",
            "        return newest if before is None else before[0]\n",
            "        return newest\n",
            _OFFSETS,
        ),
        # ---------------------------------------------------------------- classic groups
        (
            "the generation counts up",
            "classic_group/classic_group.py",
            "        self.generation += 1\n",
            "        self.generation += self.generation == 0\n",
            _GROUPS,
        ),
        (
            "one assignment per generation goes to the log",
            "classic_group/sync.py",
            "if member.member_id == group.leader_id and group.storing_generation != group.generation:",
            "if member.member_id == group.leader_id:",
            _FAILURES + "test_leader_that_repeats_its_sync_does_not_store_a_second_assignment",
        ),
        (
            "an assignment of an older generation is ignored",
            "classic_group/sync.py",
            "        return group.state is GroupState.COMPLETING_REBALANCE and group.generation == generation\n",
            "        return True\n",
            _GROUPS,
        ),
        (
            "an expired member is removed",
            "classic_group/expired_members.py",
            '    rebalance.member_gone(group, member_id, f"the session of {member_id} expired", config, effects)\n',
            "",
            _GROUPS,
        ),
        (
            "a heartbeat extends the session",
            "classic_group/heartbeat.py",
            "    rebalance.start_session(group, member, effects)\n    return Rebalance",
            "    return Rebalance",
            _GROUPS,
        ),
        (
            "a failed replacement restores the static member",
            "classic_group/join.py",
            "                group.rename_static(member, old_id)\n",
            "",
            _GROUPS,
        ),
        (
            "a member that does not sync is removed",
            "classic_group/rebalance.py",
            "    effects.timers.schedule(sync_timer(group), effects.at.now + group.rebalance_timeout_ms / 1000)\n",
            "",
            _GROUPS,
        ),
        (
            "a group whose creation failed is discarded",
            "group/group_shard.py",
            "                self._discard(group, error, later)\n",
            "                pass\n",
            _GROUPS,
        ),
        (
            "loaded members have sessions",
            "group/group_shard.py",
            "                rebalance.start_session(group, member, effects)\n",
            "                pass\n",
            _GROUPS,
        ),
        (
            "a full rebalance removes the members that it refuses",
            "classic_group/join.py",
            "            rebalance.drop_member(group, request.member_id, effects)\n",
            "            effects.timers.cancel(rebalance.session_timer(group, request.member_id))\n",
            _GROUPS,
        ),
        # ---------------------------------------------------------------- offsets
        (
            "a deleted group leaves a tombstone",
            "offsets/expiry.py",
            "        effects.write(group_removal(group.group_id))\n",
            "        pass\n",
            _OFFSETS,
        ),
        (
            "offsets of subscribed topics do not expire",
            "offsets/expiry.py",
            "        expired = not is_wanted and _is_expired(",
            "        expired = _is_expired(",
            _OFFSETS,
        ),
        (
            "pending offsets do not expire",
            "offsets/expiry.py",
            "        if expired and key not in shard.offsets.pending:\n",
            "        if expired:\n",
            _TRANSACTIONS,
        ),
        (
            "the last written transactional offset wins",
            "offsets/store.py",
            "            self.pending.overtaken(key, record_offset)\n",
            "            pass\n",
            _TRANSACTIONS,
        ),
        (
            "the age of offsets counts from when the group became empty",
            "offsets/expiry.py",
            "        return lambda committed: max(since, committed.commit_timestamp)\n",
            "        return lambda committed: committed.commit_timestamp\n",
            _OFFSETS,
        ),
        (
            "the retention time of a commit applies",
            "offsets/expiry.py",
            "        return wall_ms >= committed.expire_timestamp\n",
            "        return wall_ms - age_of(committed) >= retention_ms\n",
            _OFFSETS,
        ),
        (
            "offsets of subscribed topics are not deleted",
            "offsets/delete.py",
            "            elif is_wanted:\n",
            "            elif False:\n",
            _OFFSETS,
        ),
        # ---------------------------------------------------------------- consumer groups
        (
            "an unrevoked partition is not free",
            "consumer_group/member.py",
            "        for partitions in (self.assigned, self.revoking):\n",
            "        for partitions in (self.assigned,):\n",
            _CONSUMERS,
        ),
        (
            "a member waits for held partitions",
            "consumer_group/reconcile.py",
            "            if is_held(topic_id, number):\n",
            "            if waits and is_held(topic_id, number):\n",
            _CONSUMERS,
        ),
        (
            "a departure starts a new epoch",
            "consumer_group/leaving.py",
            "(group.epoch + 1, metadata_hash)",
            "(group.epoch, metadata_hash)",
            _CONSUMERS,
        ),
        (
            "a failed removal is retried",
            "consumer_group/expired_members.py",
            "            later.timers.schedule(key, later.at.now + _AGAIN_SECONDS)\n",
            "            pass\n",
            _CONSUMERS,
        ),
        (
            "a member that does not revoke in time is removed",
            "consumer_group/timers.py",
            "    if before != after and after.state is MemberState.UNREVOKED_PARTITIONS:\n",
            "    if before is None and after.state is MemberState.UNREVOKED_PARTITIONS:\n",
            _CONSUMERS,
        ),
        (
            "a removal writes tombstones for all records of the member",
            "consumer_group/advance.py",
            "        changes.append(TargetChange(group.group_id, member_id, None))\n",
            "        pass\n",
            _CONSUMERS,
        ),
        (
            "an old epoch is refused",
            "offsets/commit.py",
            "    group.refuse_epoch(member_id, member_epoch, progress)\n",
            "    return\n",
            _CONSUMERS,
        ),
        # ---------------------------------------------------------------- between the protocols
        (
            "a downgrade stores the held partitions",
            "consumer_group/leaving.py",
            "        owned = {known: group.progress_of(known).held_partitions for known in left}\n",
            "        owned = {known: group.target_of(known) for known in left}\n",
            _MIXED,
        ),
        (
            "cooperative members keep their owned partitions",
            "consumer_group/migration.py",
            "_unclaimed(claimed[member_id], taken).items()",
            "()",
            _MIGRATION + "test_owned_partitions_of_a_cooperative_member_stay_held_after_a_failed_rebalance",
        ),
        (
            "an upgrade during a due rebalance assigns again",
            "consumer_group/migration.py",
            "hash_of_topics(names, topics) if is_assigned else _FORCES_ASSIGNMENT",
            "hash_of_topics(names, topics)",
            _MIGRATION + "test_upgrade_by_a_static_member_assigns_unowned_partitions",
        ),
        (
            "a downgrade includes partitions received meanwhile",
            "consumer_group/classic_members.py",
            "step.progress if at_rest else requester.progress",
            "requester.progress",
            _MIGRATION + "test_static_member_that_returns_as_classic_gets_partitions_revoked_for_it",
        ),
        (
            "an upgrade removes the classic group",
            "consumer_group/migration.py",
            "    effects.write(group_removal(classic.group_id))\n",
            "",
            _MIXED,
        ),
        (
            "a downgraded group rebalances",
            "consumer_group/migration.py",
            "        if classic.state_timestamp_ms == NEEDS_REBALANCE:\n",
            "        if False:\n",
            _MIXED,
        ),
    )
)
