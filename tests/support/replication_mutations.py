"""The rules of replication, each with a way to break it; the scenarios must notice each within their seeds.

As in ``tests/support/mutations.py``, and applied by the same ``tests/test_mutations.py``.
"""

from __future__ import annotations

from tests.support.mutations import Mutation

_REPLICA = "triokafka/broker_stub/replica/"
_PARTITION = _REPLICA + "partition.py"
_DATA = _REPLICA + "fetcher/follower_log.py"
_FETCHER = _REPLICA + "fetcher/fetcher_state.py"
_T_ISR = "tests/unit/broker_stub/replica/test_in_sync_replicas.py::"
_SCENARIOS = "tests/simulation/test_replication.py::test_replicas_agree_and_no_committed_record_is_lost"

REPLICATION_MUTATIONS: tuple[Mutation, ...] = (
    *(
        Mutation(rule, file, old, new, _SCENARIOS)
        for rule, file, old, new in (
            (
                "the high watermark waits for the in-sync followers",
                _PARTITION,
                "                    replica in maximal\n",
                "                    (replica in maximal and replica == min(maximal))\n",
            ),
            (
                "a diverging follower is sent no records",
                _PARTITION,
                "        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:\n",
                "        if end.end_offset < 0:\n",
            ),
            (
                "a follower truncates to where the logs diverge, not to its high watermark (KIP-101)",
                _DATA,
                "                offset = min(own_end, leader_end, end)\n",
                "                offset = min(partition.high_watermark, end)\n",
            ),
            (
                "a follower that lacks the epoch truncates to the end of its own (KIP-279)",
                _DATA,
                "                offset = min(own_end, end)\n",
                "                offset = min(leader_end, end)\n",
            ),
            (
                "a follower truncates when the leader says so",
                _DATA,
                "if data.diverging_epoch.end_offset >= 0 or data.diverging_epoch.epoch >= 0:",
                "if data.diverging_epoch.end_offset > 10**9:",
            ),
            (
                "a fetch claims records that are not appended yet only below the high watermark",
                _FETCHER,
                "if end is None or end[0] >= data.high_watermark:",
                "if end is None:",
            ),
            (
                "a leader notes the start of its epoch before its first record",
                _PARTITION,
                "            self.log.leader_epochs.assign(leader_epoch, self._leader_epoch_start)\n",
                "            self._leader_epoch_start = self.log.log_end_offset\n",
            ),
            (
                "a follower's high watermark is bounded by its log",
                _PARTITION,
                "        known = min(high_watermark, self.log.log_end_offset)\n",
                "        known = high_watermark\n",
            ),
            (
                "a truncation lowers the high watermark",
                _PARTITION,
                "        self._set_high_watermark(min(self.high_watermark, self.log.log_end_offset))\n        return",
                "        return",
            ),
            (
                "fetching starts again when the leader's epoch grows",
                _PARTITION,
                "is_new = leader_epoch != self.leader_epoch or leader_id != self.leader_id or self.is_leader",
                "is_new = leader_id != self.leader_id or self.is_leader",
            ),
            (
                "a truncation forgets an epoch without records",
                "triokafka/broker_stub/log/truncation.py",
                "            state.leader_epochs.truncate_to(offset)\n            state.segments",
                "            state.segments",
            ),
        )
    ),
    Mutation(
        "a follower joins with the start of the leader's epoch",
        _PARTITION,
        "complete_at = max(self.high_watermark, self._leader_epoch_start)",
        "complete_at = self.high_watermark",
        _T_ISR + "test_a_follower_needs_the_start_of_the_leaders_epoch",
    ),
    Mutation(
        "a result of AlterPartition belongs to the proposal in flight",
        _PARTITION,
        "if self.isr.in_flight is not proposal or partition_epoch < self.partition_epoch:",
        "if partition_epoch < 0:",
        _T_ISR + "test_a_result_that_newer_metadata_has_overtaken_changes_nothing",
    ),
)
