"""The rules that keep a log through crashes, each with a way to break it and the test that must notice.

As in ``tests/support/mutations.py``, and applied by the same ``tests/test_mutations.py``.
"""

from __future__ import annotations

from tests.support.mutations import Mutation

_LOG = "triokafka/broker_stub/log/"
_T_RECOVERY = "tests/unit/broker_stub/log/test_recovery.py::"
_T_LOG = "tests/unit/broker_stub/log/test_partition_log.py::"
_T_MOVES = "tests/unit/broker_stub/log/test_log_mover.py::"
_T_MANAGER = "tests/unit/broker_stub/log/test_log_manager.py::"
_T_CRASHES = "tests/property/test_log_crashes.py::test_logs_keep_flushed_records_through_crashes_and_failures"

LOG_MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "recovery ends at a gap",
        _LOG + "recovery.py",
        "(segment.base_offset > self._expected and not gaps)",
        "False",
        _T_RECOVERY + "test_a_segment_that_was_lost_in_the_middle_ends_the_log",
    ),
    *(
        Mutation(rule, file, old, new, _T_CRASHES)
        for rule, file, old, new in (
            (
                "a flush syncs the records",
                _LOG + "log_segment.py",
                "            for path in (file.log_path, *paths):\n",
                "            for path in paths:\n",
            ),
            (
                "a flush syncs the names of new files",
                _LOG + "recovery_point.py",
                "            syncs.append(self.sync_names)\n",
                "            self.names_unsynced = False\n",
            ),
            (
                "the name of a log's folder is synced with the first flush",
                _LOG + "recovery_point.py",
                "            self._storage.sync_dir(os.path.dirname(self._directory))\n",
                "",
            ),
            (
                "a flush waits for what an earlier one is still syncing",
                _LOG + "recovery_point.py",
                "syncs = list(self._begun[-1].syncs) if self._begun else []",
                "syncs: list[Callable[[], None]] = []",
            ),
            (
                "the recovery point moves after the sync",
                _LOG + "recovery_point.py",
                "        self._begun.append(job)\n",
                "        self._begun.append(job)\n        self.recovery_point = max(self.recovery_point, end_offset)\n",
            ),
            (
                "a flush that a truncation has overtaken moves no recovery point",
                _LOG + "recovery_point.py",
                "if job.cuts == self.cuts:",
                "if True:",
            ),
            (
                "checkpoints come before the cut",
                _LOG + "truncation.py",
                "        if self._before_cut is not None:\n            self._before_cut(offset)\n",
                "",
            ),
            (
                "a truncation is synced",
                _LOG + "log_segments.py",
                "            self.active.truncate_to(offset, now_ms)\n            self.active.sync()\n",
                "            self.active.truncate_to(offset, now_ms)\n",
            ),
            (
                "a truncation forgets later producers",
                _LOG + "truncation.py",
                "        state.snapshots.remove_after(end)\n",
                "",
            ),
            (
                "who starts afresh knows no producers",
                _LOG + "truncation.py",
                "        state.snapshots.remove_after(-1)\n",
                "",
            ),
            (
                "recovery looks at checksums",
                _LOG + "log_segment.py",
                "visit, check_crc=True)",
                "visit, check_crc=False)",
            ),
            (
                "what recovery cuts stays cut",
                _LOG + "log_segment.py",
                "        sync_path(self.file.storage, self.file.log_path)\n        self.unsynced = True\n",
                "        self.unsynced = True\n",
            ),
            (
                "checkpoints are synced before they are renamed",
                "triokafka/world/storage.py",
                "            file.write_at(0, content)\n            file.sync()\n",
                "            file.write_at(0, content)\n",
            ),
            (
                "the marker of a clean stop is gone before anything is written",
                _LOG + "clean_shutdown.py",
                "    storage.sync_dir(directory)\n",
                "",
            ),
            (
                "a new log inherits no checkpoint",
                _LOG + "log_directory.py",
                "            if gone or checkpoint in self._doubtful:\n",
                "            if False:\n",
            ),
            (
                "the id of a topic is synced with its log",
                _LOG + "recovery_point.py",
                '            sync_path(self._storage, f"{self._directory}/{PARTITION_METADATA}")\n',
                "",
            ),
        )
    ),
    Mutation(
        "snapshots of lost records are removed",
        _LOG + "recovery.py",
        "    if snapshots.remove_after(end_offset):\n",
        "    if False:\n",
        _T_RECOVERY + "test_a_snapshot_of_lost_records_is_removed_before_the_log_reaches_its_offset_again",
    ),
    Mutation(
        "retention keeps the offset where the log ends",
        _LOG + "retention.py",
        "                durability.sync_names()\n            remove_at_ms",
        "                pass\n            remove_at_ms",
        _T_RECOVERY + "test_a_power_cut_after_retention_of_all_segments_leaves_the_end_of_the_log",
    ),
    Mutation(
        "a torn epoch file is made anew",
        _LOG + "checkpoints.py",
        "    if storage.exists(path) and not storage.read_file(path):\n"
        '        raise CorruptCheckpointError(f"{path} is empty")\n',
        "",
        _T_RECOVERY + "test_an_epoch_file_that_a_power_cut_has_emptied_is_rebuilt",
    ),
    Mutation(
        "a file that ends within a number is torn",
        _LOG + "checkpoints.py",
        '    if not text.endswith("\\n"):\n',
        "    if False:\n",
        "tests/unit/broker_stub/log/test_checkpoints.py::test_a_torn_file_of_leader_epochs_is_no_shorter_number",
    ),
    Mutation(
        "what was before the start ends no log",
        _LOG + "recovery.py",
        "        _remove_before(storage, segments, log_start_offset)\n",
        "        pass\n",
        _T_RECOVERY + "test_segments_before_the_start_are_not_missed",
    ),
    Mutation(
        "the new start is known before several segments go",
        _LOG + "retention.py",
        "                    self._checkpoint_start()\n",
        "                    pass\n",
        _T_RECOVERY + "test_several_segments_are_dropped_once_the_new_start_is_known",
    ),
    Mutation(
        "a snapshot from before the first segment counts for nothing",
        _LOG + "producer_recovery.py",
        ", from_offset=segments[0].base_offset)",
        ")",
        _T_RECOVERY + "test_a_snapshot_from_before_the_first_segment_counts_for_nothing",
    ),
    Mutation(
        "a snapshot has the last five batches of each producer",
        _LOG + "producer_snapshot_format.py",
        "        state.batches.extend(earlier.get(producer_id, ()))\n",
        "",
        "tests/simulation/test_producer_broker_faults.py::"
        "test_batches_whose_answers_were_lost_when_the_broker_ended_are_not_repeated",
    ),
    Mutation(
        "below the recovery point a gap ends no log",
        _LOG + "recovery.py",
        " or segment.base_offset <= self._known.recovery_point\n",
        "\n",
        _T_RECOVERY + "test_below_the_recovery_point_a_gap_ends_no_log",
    ),
    Mutation(
        "gaps that compaction has left are known by what comes before",
        _LOG + "recovery.py",
        "            self._has_gaps = True\n",
        "            pass\n",
        _T_RECOVERY + "test_gaps_that_compaction_has_left_are_known_by_what_comes_before",
    ),
    Mutation(
        "half a write is taken back before its segment is sealed",
        _LOG + "log_segment.py",
        "        self._take_back_torn()  # otherwise",
        "        # else",
        _T_LOG + "test_a_segment_is_not_left_with_half_a_write_at_its_end",
    ),
    Mutation(
        "the stable offset is not before the start",
        _LOG + "last_stable_offset.py",
        "min(max(first, state.log_start_offset), high_watermark)",
        "min(first, high_watermark)",
        "tests/unit/broker_stub/log/test_transactions.py::test_the_stable_offset_is_not_before_the_start_of_the_log",
    ),
    Mutation(
        "a moved log starts where it did",
        _LOG + "log_mover.py",
        "min(start_offset, first.base_offset))",
        "first.base_offset)",
        _T_MOVES + "test_offsets_without_records_at_the_start_stay_in_range",
    ),
    Mutation(
        "a log that moves takes its high watermark along",
        _LOG + "future_log_promotion.py",
        "            directories.write(target, partial(note_high_watermark, target, topic_partition, committed))\n",
        "            pass\n",
        _T_MOVES + "test_moved_log_keeps_its_high_watermark",
    ),
    Mutation(
        "the mark of a move goes when nothing of the log can come back",
        _LOG + "move_recovery.py",
        "                        storage.sync_dir(each.path)\n",
        "                        pass\n",
        _T_MOVES + "test_the_power_may_fail_while_a_dead_process_s_move_is_brought_to_its_end",
    ),
    Mutation(
        "the mark of a move goes when nothing of the log can come back, as the crash model sees it",
        _LOG + "move_recovery.py",
        "                        storage.sync_dir(each.path)\n",
        "                        pass\n",
        "tests/property/test_log_crashes.py::test_a_move_interrupted_twice_leaves_one_log",
    ),
    Mutation(
        "moves that were found begin again whatever disk fails",
        _LOG + "log_startup.py",
        "                    self._moves_again,\n",
        "                    [],\n",
        _T_MOVES + "test_moves_begin_again_whatever_other_disk_fails_at_the_start",
    ),
    Mutation(
        "a checkpoint whose write has failed is written again before a log is made",
        _LOG + "log_directory.py",
        "        self._doubtful.add(checkpoint)\n",
        "",
        _T_MANAGER + "test_a_new_log_inherits_nothing_from_a_checkpoint_that_a_power_cut_brings_back",
    ),
    Mutation(
        "of two logs the one of a former topic goes",
        _LOG + "log_discovery.py",
        "if known not in (None, topic_id)]\n",
        "if known is None]\n",
        _T_MANAGER + "test_topic_recreated_while_a_directory_was_missing_has_one_log",
    ),
)
