"""The rules of the metadata quorum, each with a way to break it and the lives of a quorum that must notice.

As in ``tests/support/mutations.py``, and applied by the same ``tests/test_mutations.py``.
"""

from __future__ import annotations

from tests.support.mutations import Mutation

_RAFT = "triokafka/broker_stub/raft/"
_LIVES = "tests/simulation/test_raft.py::test_quorum_keeps_its_invariants"

RAFT_MUTATIONS: tuple[Mutation, ...] = tuple(
    Mutation(rule, _RAFT + file, old, new, _LIVES)
    for rule, file, old, new in (
        (
            "a vote is remembered through a restart",
            "state_transitions.py",
            "return Unattached(election.epoch, election.leader_id, election.voted, at)",
            "return Unattached(election.epoch, election.leader_id, None, at)",
        ),
        (
            "a vote is on disk before it is given",
            "effects.py",
            "        if self.unsaved is not None:\n            return Output",
            "        if self.unsaved is not None and not self._output.replies:\n            return Output",
        ),
        (
            "one vote in an epoch",
            "voting.py",
            "        return state.voted.admits(candidate)\n",
            "        return True\n",
        ),
        (
            "a candidate needs a log that is up to date",
            "state_transitions.py",
            "return (last_epoch, end_offset) >= (self.log.last_epoch, self.log.end_offset)",
            "return True",
        ),
        (
            "an election needs a majority",
            "vote_count.py",
            "return len(self.granting) >= self.voters.majority",
            "return len(self.granting) >= self.voters.majority - (len(self.voters) > 2)",
        ),
        (
            "commitment needs a record of the leader's own epoch",
            "leader_state.py",
            "if committed <= self.epoch_start_offset or committed <= (self.high_watermark or 0):",
            "if committed <= (self.high_watermark or 0):",
        ),
        (
            "commitment needs a majority",
            "leader_state.py",
            "committed = min(ends[len(ends) // 2], flushed_offset)",
            "committed = min(ends[max(0, len(ends) // 2 - 1)], flushed_offset)",
        ),
        (
            "a leader counts itself only with what is on its disk",
            "state_transitions.py",
            "leader.update_high_watermark(self.log.flushed_offset)",
            "leader.update_high_watermark(self.log.end_offset)",
        ),
        (
            "a follower acknowledges only what is on its disk",
            "quorum_fetcher.py",
            "if quorum.config.can_vote and quorum.log.flushed_offset < quorum.log.end_offset:",
            "if False:",
        ),
        (
            "a follower truncates where its log diverges",
            "quorum_fetcher.py",
            "            log.truncate_to(offset)\n",
            "",
        ),
        (
            "the leader compares the epoch of the last record",
            "log_comparison.py",
            "if end.epoch != epoch or end.offset < offset:",
            "if end.offset < offset and end.epoch == epoch:",
        ),
        (
            "voters are reverted with their record",
            "quorum_fetcher.py",
            "            quorum.history.truncate_to(offset)\n",
            "",
        ),
        (
            "a leader without a majority resigns",
            "leader_state.py",
            "return self.resign_requested or now >= self.check_quorum_at",
            "return self.resign_requested",
        ),
        (
            "an epoch begins only after won pre-votes",
            "state_transitions.py",
            "if isinstance(state, Prospective) and state.election.is_won and self.epoch < LAST_EPOCH:",
            "if isinstance(state, Prospective):",
        ),
        (
            "a follower that has a leader gives no pre-vote",
            "voting.py",
            "return not (isinstance(state, Follower) and state.has_fetched)",
            "return True",
        ),
        (
            "a change of the voters waits for the commitment of the one before",
            "voter_changes.py",
            "if history.voters_offset is None or history.voters_offset >= leader.high_watermark:",
            "if history.voters_offset is None:",
        ),
        (
            "a voter whose removal may not be committed starts elections",
            "state_transitions.py",
            "        if self.is_voter or not self.config.can_vote:\n            return self.is_voter\n",
            "        return self.is_voter\n",
        ),
        (
            "a removed leader resigns",
            "raft_core.py",
            "            if not quorum.voters.is_voter(self.config.key):\n",
            "            if False:\n",
        ),
    )
)
