"""The rules that keep transactions whole, each with a way to break it and the test that must notice.

As in ``tests/support/mutations.py``, and applied by the same ``tests/test_mutations.py``.
"""

from __future__ import annotations

from tests.support.mutations import Mutation

_C = "triokafka/coordinator/transaction/"
_LOG = "triokafka/broker_stub/log/"
_LIVES = "tests/property/test_transaction_coordinator.py::test_transaction_invariants_hold_in_random_schedules"
_API = "tests/unit/broker_stub/api/test_transactions.py::"
_UNIT = "tests/unit/coordinator/test_transactions.py::"
_SIMULATED = "tests/simulation/test_transactions.py::"
_ZOMBIES = "tests/simulation/test_transaction_zombies.py::"
_VERIFICATION = "tests/unit/broker_stub/log/test_verification_guard.py::"

_MUTATIONS: tuple[Mutation, ...] = tuple(
    Mutation(rule, file, old, new, test)
    for rule, file, old, new, test in (
        (
            "a new producer fences the old one",
            _C + "initialization.py",
            "        return current.producer_epoch + 1, NO_EPOCH",
            "        return max(current.producer_epoch, 0), NO_EPOCH",
            _LIVES,
        ),
        (
            "the epoch is bumped at every end",
            _C + "metadata.py",
            "        bumps = version >= EPOCH_BUMP_SINCE\n",
            "        bumps = False\n",
            _LIVES,
        ),
        (
            "a late end of an ended transaction is refused",
            _C + "ending.py",
            "(TransactionState.ONGOING, TransactionState.EMPTY):\n        valid = is_current\n",
            "(TransactionState.ONGOING, TransactionState.EMPTY):\n        valid = True\n",
            _SIMULATED + "test_late_end_does_not_affect_the_next_transaction_under_version_2",
        ),
        (
            "markers follow committed decisions",
            _C + "transaction_shard.py",
            "        while self._uncommitted and self._uncommitted[0][0] < self._committed_below:\n",
            "        while self._uncommitted:\n",
            _LIVES,
        ),
        (
            "a marker under version 2 is above the epoch of the records",
            _LOG + "producer_state.py",
            "version >= _EPOCH_BUMP_SINCE and batch.producer_id in self._open",
            "False",
            _LIVES,
        ),
        (
            "a replaced coordinator writes no markers",
            _LOG + "producer_state.py",
            "        if marker.coordinator_epoch < state.coordinator_epoch:\n",
            "        if False:\n",
            _API + "test_markers_of_replaced_coordinators_are_refused",
        ),
        (
            "readers stop at the last stable offset",
            "triokafka/broker_stub/replica/partition.py",
            "            up_to = last_stable_offset if read_committed else high_watermark\n",
            "            up_to = high_watermark\n",
            _API + "test_records_are_visible_after_the_commit_and_never_after_an_abort",
        ),
        (
            "aborted transactions are in the index",
            _LOG + "producer_recovery.py",
            "    if completed.aborted:\n",
            "    if False:\n",
            _API + "test_many_transactions_follow_each_other",
        ),
        (
            "partitions are verified",
            "triokafka/broker_stub/coordinators/transaction_verifier.py",
            "                if code:\n                    self.failures += 1\n"
            "                    refused[key] = _for_client(code, producer)\n",
            "                pass\n",
            _API + "test_partition_that_was_not_added_takes_no_records",
        ),
        (
            "a marker ends the verification",
            _LOG + "producer_state.py",
            "        self._state(batch).coordinator_epoch = marker.coordinator_epoch\n"
            "        self._verifications.pop(batch.producer_id, None)\n",
            "        self._state(batch).coordinator_epoch = marker.coordinator_epoch\n",
            _VERIFICATION + "test_batch_without_a_guard_or_with_an_old_one_is_refused",
        ),
        (
            "offsets wait for the end of the transaction",
            "triokafka/coordinator/runtime/coordinator_runtime.py",
            "                context.shard.replay_pending(change, offset, effects.producer.producer_id)\n",
            "                context.shard.replay(change, offset, committed=committed_now)\n",
            _API + "test_offsets_take_effect_with_the_commit",
        ),
        (
            "a loaded decision is continued",
            _C + "transaction_shard.py",
            "        self.completions.forget(self.partition)\n        self.commit(self._committed_below)\n",
            "        self.completions.forget(self.partition)\n        self._uncommitted.clear()\n",
            _UNIT + "test_loaded_decision_reaches_the_marker_writer_again_under_the_new_epoch",
        ),
        (
            "a transaction that is open for too long is aborted",
            _C + "timed_out_transactions.py",
            "    fence(shard, transactional_id, current, new_producer_id=new_producer_id, effects=effects)\n",
            "",
            _UNIT + "test_open_transaction_is_aborted_after_its_timeout",
        ),
        (
            "a transaction that took too long leaves an epoch to fence with",
            _C + "timed_out_transactions.py",
            "            shard.needs_producer_id(shard.partition, transactional_id)\n",
            "            pass\n",
            _UNIT + "test_timeout_of_the_last_epoch_gives_a_new_producer_id",
        ),
        (
            "a producer with a new producer id is no stranger before the markers are written",
            _C + "metadata.py",
            "        return producer_id == self.next_producer_id != NO_PRODUCER_ID\n",
            "        return False\n",
            _UNIT + "test_producer_that_got_a_new_id_waits_for_the_markers_of_its_last_transaction",
        ),
        (
            "a completion is stored in the end",
            _C + "completion.py",
            "            later.timers.schedule(key, later.at.now + _RETRY_SECONDS)\n",
            "            pass\n",
            _UNIT + "test_completion_is_stored_although_an_append_fails_first",
        ),
        (
            "one request for markers is in flight",
            _C + "marker_queue.py",
            "            if node_id not in self._in_flight and (request",
            "            if (request",
            _UNIT + "test_markers_of_one_broker_share_a_request_and_one_is_in_flight",
        ),
    )
)


_FOUND_BY_SIMULATION = (
    "a new producer fences the old one",
    "markers follow committed decisions",
    "a replaced coordinator writes no markers",
    "partitions are verified",
)
"""Rules that the random simulation of zombies and moving coordinators notices, too, within its quick seeds."""

TRANSACTION_MUTATIONS: tuple[Mutation, ...] = _MUTATIONS + tuple(
    mutation._replace(test=_ZOMBIES + "test_transactions_are_atomic_despite_zombies_and_moving_coordinators")
    for mutation in _MUTATIONS
    if mutation.rule in _FOUND_BY_SIMULATION
)
