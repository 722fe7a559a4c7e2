"""The rules of the assignors, each with a way to break it and the test that must notice.

As in ``tests/support/mutations.py``, and applied by the same ``tests/test_mutations.py``.
"""

from __future__ import annotations

from tests.support.mutations import Mutation

_ASSIGNORS = "triokafka/assignors/"
_T_ASSIGNORS = "tests/unit/assignors/test_assignors.py::"
_T_STICKY_DATA = "tests/unit/assignors/test_sticky_data.py::"
_T_PROPERTIES = "tests/property/test_assignors.py::"
_T_BEST = _T_PROPERTIES + "test_no_assignment_is_better_than_the_sticky_one"

ASSIGNOR_MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "a move costs",
        _ASSIGNORS + "exchange.py",
        "return shares.is_away(kind, member) * self._away + (count > shares.had(kind, member))",
        "return shares.is_away(kind, member) * self._away",
        _T_BEST,
    ),
    Mutation(
        "another rack costs more than all moves",
        _ASSIGNORS + "exchange.py",
        "self._away = total + 1",
        "self._away = 1",
        _T_BEST,
    ),
    Mutation(
        "an uneven count costs more than all racks",
        _ASSIGNORS + "exchange.py",
        "self._step = total * (self._away + 1) + 1",
        "self._step = 1",
        _T_BEST,
    ),
    Mutation(
        "the search goes on where an exchange has changed something",
        _ASSIGNORS + "exchange.py",
        "shortened.update(dict.fromkeys(circle))",
        "shortened.clear()",
        _T_BEST,
    ),
    Mutation(
        "racks make no difference where all have everything",
        _ASSIGNORS + "racks.py",
        "not everywhere.isdisjoint(of_members) and any(racks != everywhere for racks in of_partitions)",
        "not everywhere.isdisjoint(of_members)",
        _T_ASSIGNORS + "test_racks_do_not_matter_when_every_partition_is_in_every_rack",
    ),
    Mutation(
        "of topics that go together, a member gets no more than its share",
        _ASSIGNORS + "range.py",
        "while queue and not first.room(queue[0][1]):",
        "while False:",
        _T_ASSIGNORS + "test_range_in_racks_assigns_co_partitioned_topics_alike",
    ),
    Mutation(
        "range looks for partitions in the member's rack",
        _ASSIGNORS + "range.py",
        "if rack is None or rack in racks]",
        "if True]",
        _T_ASSIGNORS + "test_range_in_racks_prefers_partitions_with_a_replica_in_the_members_rack",
    ),
    Mutation(
        "cooperative assigns a moving partition only after its revocation",
        _ASSIGNORS + "sticky.py",
        "if not holders.get(partition, set()) - {member_id}",
        "if partition",
        _T_STICKY_DATA + "test_cooperative_assigns_a_moving_partition_only_after_its_revocation",
    ),
    Mutation(
        "of two that claim a partition in one generation, neither is believed",
        _ASSIGNORS + "sticky_assignment.py",
        "elif generation == known[0] and known[1] != member_id:",
        "elif False:",
        _T_ASSIGNORS + "test_the_newer_generation_owns_and_equal_claims_cancel",
    ),
    Mutation(
        "members are in javas order",
        _ASSIGNORS + "assignor.py",
        'return text.encode("utf-16-be", "surrogatepass")',
        "return text.encode()",
        _T_ASSIGNORS + "test_members_are_in_javas_order",
    ),
    Mutation(
        "a member that holds nothing says so",
        _ASSIGNORS + "sticky.py",
        "if self._held is None:",
        "if not self._held:",
        _T_STICKY_DATA + "test_sticky_reports_an_empty_assignment",
    ),
    Mutation(
        "the leader watches racks",
        "triokafka/client/consumer/rebalance/classic_rebalance.py",
        "if assigned is not None and settled and assigned != leader.layout():",
        "if assigned is not None and settled and assigned.counts != leader.layout().counts:",
        "tests/unit/client/consumer/test_racks.py::test_the_leader_assigns_again_when_replicas_are_in_other_racks",
    ),
)
