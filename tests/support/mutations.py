"""The subtle rules of the producer, each with a way to break it and the test that must notice.

``tests/test_mutations.py`` applies them, one at a time, to a copy of the package. A mutation replaces ``old``, which
occurs exactly once in ``file``, by ``new``; then ``test`` must fail.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """One broken rule, and the test that must fail. ``rule`` names the rule in test ids and reports."""

    rule: str
    file: str
    old: str
    new: str
    test: str

    @property
    def name(self) -> str:
        """Return the name for test ids and reports."""
        return f"{self.rule}: {self.test.rpartition('::')[2]}"


_PRODUCER = "triokafka/client/producer/"
_UNIT = "tests/unit/client/producer/"
_ACCUMULATOR = _PRODUCER + "accumulator.py"
_ANSWERS = _PRODUCER + "response_handler.py"
_LEDGER = _PRODUCER + "incomplete_batches.py"
_BATCH = _PRODUCER + "batch.py"
_OPENER = _PRODUCER + "batch_opener.py"
_POOL = _PRODUCER + "buffer_pool.py"
_QUEUE = _PRODUCER + "partition_queue.py"
_IDEMPOTENCE = _PRODUCER + "idempotence.py"
_SEQUENCES = _PRODUCER + "sequences.py"
_SPLITTING = _PRODUCER + "splitting.py"
_PARTITIONER = _PRODUCER + "partitioner.py"
_CONNECTION = "triokafka/network/connection.py"

_T_ACCUMULATOR = _UNIT + "test_accumulator.py::"
_T_CANCELLATION = _UNIT + "test_cancellation.py::"
_T_OPENER = _UNIT + "test_batch_opener.py::"
_T_POOL = _UNIT + "test_buffer_pool.py::"
_T_PRODUCER = _UNIT + "test_producer.py::"
_T_QUEUE = _UNIT + "test_partition_queue.py::"
_T_SENDER = _UNIT + "test_sender.py::"
_T_SEQUENCES = _UNIT + "test_sequences.py::"
_T_TOPIC = _UNIT + "test_topic_state.py::"
_T_MODEL = "tests/property/test_sender_model.py::TestSenderModel"
_T_CONNECTION = "tests/unit/network/test_connection.py::"

MUTATIONS: tuple[Mutation, ...] = (
    # ---------------------------------------------------------------- appending
    Mutation(
        "large record that waited for memory does not wait again behind small ones",
        _OPENER,
        "if queue.open is not None and queue.open.room >= record_bytes:\n                self._pool",
        "if queue.open is not None:\n                self._pool",
        _T_PRODUCER + "test_large_record_that_waited_for_memory_does_not_wait_again_behind_small_ones",
    ),
    Mutation(
        "memory that came too late goes back",
        _OPENER,
        "            try:\n                self._check_usable()\n            except BaseException:\n"
        "                self._pool.release(buffer, size)\n                raise\n",
        "",
        _T_OPENER + "test_memory_allocated_too_late_is_released",
    ),
    Mutation(
        "a pause is only as long as the network needs",
        _ACCUMULATOR,
        "len(left) <= _FEW_BATCHES",
        "not left",
        _T_OPENER + "test_sender_far_ahead_continues_when_few_batches_are_left",
    ),
    Mutation(
        "a template reads only the usual answer",
        "triokafka/protocol/templates.py",
        "            and frame[self._end :] == self._behind\n",
        "",
        "tests/unit/protocol/test_templates.py::test_any_other_answer_is_left_to_the_codec",
    ),
    Mutation(
        "a template is checked against the codec",
        "triokafka/protocol/templates.py",
        'if b"".join(self.frame(number, records)) != b"".join(expected):',
        "if not expected:",
        "tests/unit/protocol/test_templates.py::test_template_that_would_not_make_the_same_is_refused",
    ),
    Mutation(
        "record that fits the open batch waits for nobody",
        _PRODUCER + "producer.py",
        'outside the producer\'s block.\n        """\n        delivery = self._fast_path.append(',
        'outside the producer\'s block.\n        """\n        while self._accumulator.pool.waiting:\n'
        "            await trio.sleep(0.01)\n        delivery = self._fast_path.append(",
        _T_OPENER + "test_record_that_fits_the_open_batch_does_not_wait",
    ),
    Mutation(
        "two tasks that wait for memory share one batch and give back the rest",
        _OPENER,
        "            if queue.open is not None and queue.open.room >= record_bytes:\n"
        "                self._pool.release(buffer, size)\n                return\n",
        "",
        _T_PRODUCER + "test_two_tasks_that_wait_for_memory_share_one_batch_and_release_the_rest",
    ),
    Mutation(
        "two tasks that wait for memory share one batch and give back the rest",
        _OPENER,
        "queue.open.room >= record_bytes:\n                self._pool.release(buffer, size)\n",
        "queue.open.room >= record_bytes:\n",
        _T_PRODUCER + "test_two_tasks_that_wait_for_memory_share_one_batch_and_release_the_rest",
    ),
    Mutation(
        "two tasks that find the batch full share the next one",
        _OPENER,
        "        self._check_usable()\n        if queue.open is not None and queue.open.room >= record_bytes:\n"
        "            return\n",
        "        self._check_usable()\n",
        _T_PRODUCER + "test_two_tasks_that_find_the_batch_full_share_the_next_one",
    ),
    Mutation(
        "batch that cannot be made gives its memory back",
        _ACCUMULATOR,
        "            self.pool.release(buffer, len(buffer))\n            raise\n",
        "            raise\n",
        _T_ACCUMULATOR + "test_batch_that_cannot_be_created_releases_its_memory",
    ),
    Mutation(
        "small record does not slip into a batch that refused a larger one",
        _PRODUCER + "waiting_send.py",
        "            queue.close_open()\n            queue = known.queue_for(record.partition, key, value)\n",
        "            return queue, None\n",
        _T_OPENER + "test_small_record_does_not_enter_a_batch_that_refused_a_larger_one",
    ),
    Mutation(
        "small record does not slip into a batch that refused a larger one",
        _OPENER,
        "            full.close_open()\n            self._note_filled()\n",
        "            self._note_filled()\n",
        _T_OPENER + "test_small_record_does_not_enter_a_batch_that_refused_a_larger_one",
    ),
    Mutation(
        "closed batch and a second batch make the partition ready",
        _QUEUE,
        "            batch.close()\n",
        "",
        _T_ACCUMULATOR + "test_closed_batch_and_a_second_batch_make_the_partition_ready",
    ),
    # ---------------------------------------------------------------- when a batch goes out
    Mutation(
        "back off vetoes also flush and close",
        _ACCUMULATOR,
        "        return wait\n\n    def _may_drain",
        "        return wait if not (self.closing or self.flushes) else 0.0\n\n    def _may_drain",
        _T_ACCUMULATOR + "test_back_off_vetoes_also_flush_and_close",
    ),
    Mutation(
        "batch that backs off does not ride along",
        _ACCUMULATOR,
        "        if head.retry_at > now and self._back_off(head, cluster, now) > 0:\n            return False\n",
        "",
        _T_ACCUMULATOR + "test_batch_that_backs_off_is_not_drained_with_a_ready_one",
    ),
    Mutation(
        "muted partition is neither ready nor drained",
        _ACCUMULATOR,
        "            if settings.one_in_flight and queue.on_wire:\n",
        "            if False:\n",
        _T_ACCUMULATOR + "test_muted_partition_is_neither_ready_nor_drained",
    ),
    Mutation(
        "unknown leader is reported only while records wait for it",
        _ACCUMULATOR,
        "                leaderless = True\n                continue\n",
        "                continue\n",
        _T_ACCUMULATOR + "test_unknown_leader_is_reported_only_while_records_wait_for_it",
    ),
    Mutation(
        "next look is when the first of all waits ends",
        _ACCUMULATOR,
        "next_check = min(next_check, wait)",
        "next_check = wait",
        _T_ACCUMULATOR + "test_next_check_is_when_the_earliest_wait_ends",
    ),
    Mutation(
        "lingering batches ride along",
        _ACCUMULATOR,
        "                if not self._may_drain(queue, head, cluster, now):\n",
        "                if not self._may_drain(queue, head, cluster, now) or not (head.attempts or head.full):\n",
        _T_ACCUMULATOR + "test_lingering_batches_are_drained_with_a_ready_one",
    ),
    Mutation(
        "lingering batches ride along",
        _ACCUMULATOR,
        "            if node in by_node:\n                by_node[node].append(queue)\n",
        "            for taken in by_node.values():\n                taken.append(queue)\n",
        _T_ACCUMULATOR + "test_lingering_batches_are_drained_with_a_ready_one",
    ),
    Mutation(
        "drain takes one batch per partition in order",
        _ACCUMULATOR,
        "            for queue in queues:\n                head = queue.batches[0]\n",
        "            for queue in [*queues, *(q for q in queues if len(q.batches) > 1)]:\n"
        "                head = queue.batches[0]\n",
        _T_ACCUMULATOR + "test_drain_takes_one_batch_per_partition_in_order",
    ),
    Mutation(
        "request size is capped but one batch always goes",
        _ACCUMULATOR,
        "if batches and size + head.size > self.settings.max_request_size:",
        "if size + head.size > self.settings.max_request_size:",
        _T_ACCUMULATOR + "test_request_size_is_limited_but_one_batch_is_always_sent",
    ),
    Mutation(
        "request size is capped but one batch always goes",
        _ACCUMULATOR,
        "size + head.size > self.settings.max_request_size",
        "size > self.settings.max_request_size",
        _T_ACCUMULATOR + "test_request_size_is_limited_but_one_batch_is_always_sent",
    ),
    Mutation(
        "next round goes on where the cap cut",
        _ACCUMULATOR,
        "                    self._start_at[node] = queue.topic_partition\n",
        "",
        _T_ACCUMULATOR + "test_next_drain_continues_where_the_size_limit_stopped",
    ),
    Mutation(
        "rotation is kept per node",
        _ACCUMULATOR,
        "first = self._start_at.pop(node, None)",
        "first = self._start_at.popitem()[1] if self._start_at else None",
        _T_ACCUMULATOR + "test_rotation_of_partitions_is_per_node",
    ),
    Mutation(
        "retried batches go back to their places",
        _QUEUE,
        "        self.batches.insert(position, batch)\n",
        "        self.batches.appendleft(batch)\n",
        _T_ACCUMULATOR + "test_retried_batches_return_to_their_positions",
    ),
    Mutation(
        "drained batch is closed and retried with the same bytes",
        _BATCH,
        "        return self._built\n\n    def release",
        "        if self.attempts > 1:\n            self._built[21] ^= 8\n        return self._built\n\n"
        "    def release",
        _T_ACCUMULATOR + "test_drained_batch_is_closed_and_retried_with_the_same_bytes",
    ),
    Mutation(
        "memory is held until the batch is settled",
        _LEDGER,
        "        buffer, reserved = batch.release()\n        if reserved:\n",
        "        buffer, reserved = batch.release()\n        if reserved and buffer is None:\n",
        _T_ACCUMULATOR + "test_memory_is_reserved_until_the_batch_is_settled",
    ),
    Mutation(
        "expiry stops at the first batch that is young",
        _PRODUCER + "batch_expiry.py",
        "        if batch.created_at + timeout > now:\n            break",
        "        if batch.created_at + timeout > now:\n            continue",
        _T_ACCUMULATOR + "test_expiry_stops_at_the_first_batch_within_its_time",
    ),
    Mutation(
        "expired batches fail in the order of their making and the others stay",
        _PRODUCER + "batch_expiry.py",
        "explain(batch))) for batch in expired]:\n",
        "explain(batch))) for batch in reversed(expired)]:\n",
        _T_ACCUMULATOR + "test_expired_batches_fail_in_order_of_creation_and_the_others_stay",
    ),
    Mutation(
        "batch that expires on the wire keeps its memory until the answer",
        _LEDGER,
        "        if not batch.on_wire:\n            if self.idempotent:\n",
        "        if True:\n            if self.idempotent:\n",
        _T_ACCUMULATOR + "test_batch_that_expires_in_flight_releases_its_memory_with_the_response",
    ),
    # ---------------------------------------------------------------- memory
    Mutation(
        "waiter for one buffer gets the one that is given back",
        _POOL,
        "                head.buffer = self._free.pop()\n                head.reserved = head.size\n",
        "                head.buffer = self._free.pop()\n                head.reserved = head.size\n"
        "                self.available -= head.size\n",
        _T_POOL + "test_waiter_for_one_buffer_gets_the_released_one",
    ),
    Mutation(
        "waiters are served in order and small ones do not overtake",
        _POOL,
        "        self._waiters.append(waiter)\n",
        "        self._waiters.appendleft(waiter)\n",
        _T_POOL + "test_waiters_are_served_in_order_and_small_ones_do_not_overtake",
    ),
    Mutation(
        "waiters are served in order and small ones do not overtake",
        _POOL,
        "                head.reserved += taken\n                self.available -= taken\n"
        "                if taken < short:\n                    return\n",
        "                if taken < short:\n                    return\n"
        "                head.reserved += taken\n                self.available -= taken\n",
        _T_POOL + "test_waiters_are_served_in_order_and_small_ones_do_not_overtake",
    ),
    Mutation(
        "waiters are served in order and small ones do not overtake",
        _POOL,
        "            self._waiters.popleft()\n            head.wake()",
        "            self._waiters.popleft()\n            head.wake()\n            return",
        _T_POOL + "test_waiters_are_served_in_order_and_small_ones_do_not_overtake",
    ),
    Mutation(
        "cancelled waiter gives back what it had and the next is served",
        _POOL,
        "        self.available += waiter.reserved\n        self._serve()\n",
        "        self._serve()\n",
        _T_POOL + "test_cancelled_waiter_returns_its_reservation_and_the_next_is_served",
    ),
    Mutation(
        "cancelled waiter gives back what it had and the next is served",
        _POOL,
        "        self.available += waiter.reserved\n        self._serve()\n",
        "        self.available += waiter.reserved\n",
        _T_POOL + "test_cancelled_waiter_returns_its_reservation_and_the_next_is_served",
    ),
    Mutation(
        "allocation cancelled at any checkpoint leaves the pool whole",
        _POOL,
        "        self._waiters.remove(waiter)\n",
        "",
        _T_POOL + "test_allocation_cancelled_at_any_checkpoint_leaves_the_pool_complete",
    ),
    Mutation(
        "grown buffer is credited with what was lent",
        _POOL,
        "size == self.pooled_size == len(buffer)",
        "size == self.pooled_size",
        _T_POOL + "test_grown_buffer_releases_its_allocated_size",
    ),
    Mutation(
        "flush closing and waiters make everything ready",
        _ACCUMULATOR,
        " or self.pool.waiting > 0\n",
        "\n",
        _T_ACCUMULATOR + "test_flush_closing_and_waiters_make_everything_ready",
    ),
    Mutation(
        "split memory",
        _LEDGER,
        "            piece.reserved = lent // len(pieces)\n        pieces[-1].reserved += lent % len(pieces)\n",
        "            piece.reserved = lent\n",
        _T_MODEL,
    ),
    # ---------------------------------------------------------------- sender
    Mutation(
        "new batch wakes the sender for its linger",
        _OPENER,
        "        if is_only_one or accumulator.in_hurry:\n            self._wake()\n",
        "        if is_only_one or accumulator.in_hurry:\n            pass\n",
        _T_OPENER + "test_new_batch_wakes_the_sender_for_its_linger",
    ),
    Mutation(
        "one among others",
        _OPENER,
        "            self._wake_by(now + accumulator.settings.linger, now)",
        "            pass",
        _UNIT + "test_send_path.py::test_batch_is_sent_when_its_linger_ends_even_while_others_wait_longer",
    ),
    Mutation(
        "full batch wakes the sender",
        _OPENER,
        "            full.close_open()\n            self._note_filled()\n",
        "            full.close_open()\n",
        _T_OPENER + "test_full_batch_wakes_the_sender",
    ),
    Mutation(
        "no more than can be sent",
        _OPENER,
        "            or self._filled >= self._max_in_flight\n",
        "",
        _T_OPENER + "test_no_more_batches_are_filled_without_yielding_than_may_be_in_flight",
    ),
    Mutation(
        "right behind another",
        _ACCUMULATOR,
        " or len(self.active) > 1 or settings.one_in_flight or ",
        " or len(self.active) > 1 or ",
        _T_ACCUMULATOR + "test_take_following_returns_no_batch_that_must_wait",
    ),
    Mutation(
        "right behind another",
        _ACCUMULATOR,
        "if head.retry_at > now or not head.count or",
        "if not head.count or",
        _T_ACCUMULATOR + "test_take_following_returns_no_batch_that_must_wait",
    ),
    Mutation(
        "right behind another",
        _ACCUMULATOR,
        "        if self.batches.idempotent and not queue.sequences.may_send(head):\n            return None\n",
        "",
        _T_ACCUMULATOR + "test_take_following_returns_no_batch_that_must_wait",
    ),
    Mutation(
        "right behind another",
        _ACCUMULATOR,
        "if queue is None or len(self.active) > 1 or",
        "if queue is None or",
        _T_ACCUMULATOR + "test_a_batch_does_not_overtake_those_of_other_partitions",
    ),
    Mutation(
        "a batch is compressed by one only",
        _ACCUMULATOR,
        "            if compressor.hand_over() or head.in_thread:\n",
        "            if compressor.hand_over():\n",
        _UNIT + "test_lz4_compressor.py::test_batch_handed_over_at_the_last_moment_is_not_compressed_twice",
    ),
    Mutation(
        "what the thread did not do comes back",
        _PRODUCER + "lz4_compressor.py",
        "                self._let_go(self._given.popleft()[0])\n",
        "                self._given.popleft()\n",
        _UNIT + "test_lz4_compressor.py::test_cancelled_compressor_returns_its_batches",
    ),
    Mutation(
        "others get their turn",
        _OPENER,
        "            self._begun_bytes >= _BYTES_BETWEEN_YIELDS\n            or self._filled",
        "            self._filled",
        _T_OPENER + "test_full_batch_is_followed_by_another_without_yielding_until_other_tasks_must_run",
    ),
    Mutation(
        "muted partition does not ride along",
        _ACCUMULATOR,
        "        if head.in_thread or (self.settings.one_in_flight and queue.on_wire):\n",
        "        if head.in_thread:\n",
        _T_ACCUMULATOR + "test_muted_partition_is_not_drained_with_a_ready_one",
    ),
    Mutation(
        "muted partition is neither ready nor drained",
        _ACCUMULATOR,
        "        queue.on_wire += 1\n",
        "",
        _T_ACCUMULATOR + "test_muted_partition_is_neither_ready_nor_drained",
    ),
    Mutation(
        "stale metadata error has the metadata refreshed and the new leader used",
        _ANSWERS,
        "error.invalid_metadata:\n",
        "error.invalid_metadata and False:\n",
        _T_PRODUCER + "test_stale_metadata_error_triggers_a_metadata_refresh_and_the_new_leader_is_used",
    ),
    Mutation(
        "unanswered batch is sent again unless nobody would know it for a repeat",
        _ANSWERS,
        "retry=self._acks != 0 and self._attempts_left(batch)",
        "retry=self._attempts_left(batch)",
        _UNIT + "test_response_handler.py::test_unanswered_batch_is_retried_unless_duplicates_could_go_undetected",
    ),
    Mutation(
        "connection that takes nothing costs no attempt",
        _ANSWERS,
        "            batch.attempts -= 1\n",
        "",
        _T_SENDER + "test_request_refused_by_the_connection_costs_no_attempt",
    ),
    Mutation(
        "retries are counted and bounded",
        _ANSWERS,
        "return batch.attempts <= self._retries",
        "return batch.attempts < self._retries",
        _T_SENDER + "test_retries_are_counted_and_bounded",
    ),
    Mutation(
        "leader that moved is tried at once by every batch that waits",
        _ACCUMULATOR,
        "        if wait > 0 and cluster.leader_epoch_for(head.topic_partition) > head.leader_epoch:\n"
        "            return 0.0\n",
        "",
        _T_SENDER + "test_new_leader_is_tried_at_once_by_every_waiting_batch",
    ),
    Mutation(
        "fatal after the other answers",
        _ANSWERS,
        "                self._fatal = error\n",
        "                self._on_fatal(error)\n",
        _T_SENDER + "test_fatal_error_leaves_the_other_results_of_its_response_unchanged",
    ),
    # ---------------------------------------------------------------- sequence numbers
    Mutation(
        "number kept on retry",
        _SEQUENCES,
        "        if batch.base_sequence >= 0:\n            return\n        if self.identity",
        "        if self.identity",
        _T_SEQUENCES + "test_sequence_numbers_count_records_and_do_not_change_in_retries",
    ),
    Mutation(
        "numbers begin again",
        _SEQUENCES,
        "    return (sequence + count) % _SEQUENCES",
        "    return sequence + count",
        _T_SEQUENCES + "test_sequence_numbers_wrap_to_zero_after_the_greatest",
    ),
    Mutation(
        "first unanswered one first",
        _SEQUENCES,
        "            return in_flight[0] is batch\n",
        "            return True\n",
        _T_SEQUENCES + "test_only_the_first_unanswered_batch_may_be_sent_again",
    ),
    Mutation(
        "nothing behind the very first one",
        _SEQUENCES,
        "self.last_acked >= 0 and in_flight[0]",
        "in_flight[0]",
        _T_SEQUENCES + "test_nothing_follows_the_first_batch_until_the_broker_has_it",
    ),
    Mutation(
        "nothing new behind one that is sent again",
        _SEQUENCES,
        "in_flight[0].attempts <= 1 and ",
        "",
        _T_SEQUENCES + "test_no_new_batch_follows_a_retried_one",
    ),
    Mutation(
        "five in flight",
        _SEQUENCES,
        " and len(in_flight) < _REMEMBERED_BATCHES\n",
        "\n",
        _T_SEQUENCES + "test_five_batches_are_in_flight_at_most",
    ),
    Mutation(
        "a refused batch may have been written before",
        _ANSWERS,
        "fate_known = answer is not None and batch.attempts == 1",
        "fate_known = answer is not None",
        _UNIT + "test_doubt.py::test_refusal_after_an_attempt_with_unknown_outcome_repeats_no_later_batch",
    ),
    Mutation(
        "unknown producer without a log start is asked again under the same number",
        _SEQUENCES,
        "            if log_start_offset >= 0 and not batch.renumbered:\n",
        "            if not batch.renumbered:\n",
        _T_SEQUENCES + "test_unknown_producer_id_error_without_a_log_start_is_retried_with_the_same_sequence_number",
    ),
    Mutation(
        "unknown fate of the last batch needs a new epoch",
        _SEQUENCES,
        "            if self.next != add_sequence(self.last_acked, 1):\n                self.bump_wanted = True\n",
        "",
        _T_SEQUENCES + "test_unknown_outcome_of_the_last_batch_needs_a_new_epoch",
    ),
    Mutation(
        "doubt before a refusal",
        _SEQUENCES,
        "if fate_known and not (self.in_flight and self.in_flight[0].number < batch.number):",
        "if fate_known:",
        _T_SEQUENCES + "test_batch_before_a_refused_one_keeps_its_numbers",
    ),
    Mutation(
        "second loss begins another epoch once the first one was good",
        _SEQUENCES,
        "                behind.renumbered = False",
        "                pass",
        _T_SEQUENCES + "test_second_loss_starts_another_epoch_once_the_first_epoch_has_worked",
    ),
    Mutation(
        "no new numbers while old ones are on the wire",
        _SEQUENCES,
        "return self.bump_wanted and not any(batch.on_wire for batch in self.in_flight)",
        "return self.bump_wanted",
        _T_SEQUENCES + "test_lost_producer_state_starts_a_new_epoch_once_nothing_is_in_flight",
    ),
    Mutation(
        "topic used again after it was forgotten counts on under a new epoch",
        _IDEMPOTENCE,
        "        if lost and self.identity.known and not",
        "        if False and not",
        _T_SENDER + "test_topic_used_again_after_it_was_forgotten_starts_a_new_epoch",
    ),
    Mutation(
        "not when leaving",
        _IDEMPOTENCE,
        " and not self._accumulator.closing:  # then",
        ":  # then",
        _T_SENDER + "test_leaving_needs_no_new_epoch",
    ),
    Mutation(
        "forgotten at all",
        _QUEUE,
        "_QueueReference(queue, self._forget)",
        "_QueueReference(queue, lambda _, keep=queue: None)",
        _T_QUEUE + "test_unreferenced_queue_is_dropped_at_once",
    ),
    Mutation(
        "not too early",
        _LEDGER,
        "        self.unreleased[batch] = queue\n        if self._on_admitted",
        "        import weakref\n\n        self.unreleased[batch] = weakref.proxy(queue)\n        if self._on_admitted",
        _T_QUEUE + "test_queue_with_waiting_or_in_flight_batches_is_not_dropped",
    ),
    Mutation(
        "order of the pieces",
        _SPLITTING,
        "(*batch.number, position)",
        "(*batch.number, 1 - position)",
        _T_PRODUCER + "test_too_large_batch_is_split_and_keeps_its_order",
    ),
    Mutation(
        "age of the pieces",
        _LEDGER,
        "        line[place : place + 1] = pieces\n",
        "        del line[place]\n        line += pieces\n",
        _T_ACCUMULATOR + "test_pieces_of_a_split_batch_inherit_its_position_age_and_memory",
    ),
    # ---------------------------------------------------------------- partitions
    Mutation(
        "by bytes, not by batches",
        _PARTITIONER,
        "        if produced > limit // 2:\n",
        "        if produced:\n",
        _T_TOPIC + "test_early_linger_does_not_change_the_sticky_partition",
    ),
    Mutation(
        "what was too much or too little counts in the next turn",
        _PARTITIONER,
        "            self._surplus[self.current] = min(produced - limit, limit // 2)\n",
        "",
        _T_TOPIC + "test_each_partition_gets_the_same_bytes_although_some_brokers_are_slow",
    ),
    Mutation(
        "node that takes nothing for long is avoided until it does",
        _PARTITIONER,
        "        if accumulator.slow_nodes:\n",
        "        if False:\n",
        _T_TOPIC + "test_node_that_accepts_nothing_for_long_is_avoided_until_it_does",
    ),
    # ---------------------------------------------------------------- connections
    Mutation(
        "silence ends the connection and fails the newest first",
        _CONNECTION,
        "        for entry in reversed(failed):\n",
        "        for entry in failed:\n",
        _T_CONNECTION + "test_silence_ends_the_connection_and_fails_the_newest_request_first",
    ),
    Mutation(
        "silence ends the connection and fails the newest first",
        _CONNECTION,
        "                self.close(error)\n                return\n            due = min(",
        "                return\n            due = min(",
        _T_CONNECTION + "test_silence_ends_the_connection_and_fails_the_newest_request_first",
    ),
    Mutation(
        "the oldest counts",
        "triokafka/network/request_timeouts.py",
        "due = min(entry.deadline",
        "due = max(entry.deadline",
        _T_CONNECTION + "test_silence_ends_the_connection_and_fails_the_newest_request_first",
    ),
)
