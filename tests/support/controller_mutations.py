"""The rules of the active controller's decisions, each with a way to break it and the test that must notice.

As in ``tests/support/mutations.py``, and applied by the same ``tests/test_mutations.py``.
"""

from __future__ import annotations

from tests.support.mutations import Mutation

_C = "triokafka/broker_stub/controller/"
_LIVES = "tests/property/test_cluster_decisions.py::test_invariants_hold_in_random_schedules_of_a_cluster"
_UNIT = "tests/unit/broker_stub/controller/"
_REFUSED = _UNIT + "test_alter_partition.py::test_request_that_does_not_fit_is_refused_with_its_reason"
_BEATS = _UNIT + "test_broker_control.py::test_heartbeats_of_unknown_brokers_and_old_epochs_are_refused"
_ELIGIBLE = _UNIT + "test_elections.py::test_eligible_leader_is_not_elected_while_a_replica_is_in_sync"

CONTROLLER_MUTATIONS: tuple[Mutation, ...] = tuple(
    Mutation(rule, file if "/" in file else _C + file, old, new, test[0] if test else _LIVES)
    for rule, file, old, new, *test in (
        (
            "a term begins with its first records",
            "event_queue.py",
            "return self._new_term is None and not self._activation_due and",
            "return self._new_term is None and",
            _UNIT + "test_event_queue.py::test_operation_that_waited_for_its_term_comes_after_the_activation",
        ),
        (
            "a broker that restarts uncleanly is not an eligible leader",
            "eligible_leader_replicas.py",
            "and replica in replicas and replica != unclean",
            "and replica in replicas",
        ),
        (
            "a clean shutdown has the epoch of the last registration",
            "broker_control.py",
            "registration.previous_broker_epoch == former.broker_epoch",
            "registration.previous_broker_epoch <= former.broker_epoch",
        ),
        (
            "a fenced broker leaves in-sync sets",
            "partition_change.py",
            "tuple(replica for replica in isr if not liveness.leaves(replica)),",
            "tuple(isr),",
        ),
        (
            "a broker that is about to be fenced leads nothing",
            "partition_change.py",
            "if broker is None or self.leaves(broker_id) or not",
            "if broker is None or not",
        ),
        (
            "a broker without the log directory of its replica leads nothing",
            "partition_change.py",
            "return broker.has_online(directory)",
            "return True",
        ),
        (
            "eligible leaders come only after in-sync replicas",
            "elections.py",
            "eligible = isr or elr",
            "eligible = (*elr, *isr)",
            _ELIGIBLE,
        ),
        (
            "an eligible leader is the only in-sync replica",
            "partition_change.py",
            "self.isr, self.elr = (leader,), tuple(replica for replica in self.elr if replica != leader)",
            "self.isr, self.elr = (leader, *self.elr), ()",
        ),
        (
            "an unclean leader is the only in-sync replica",
            "partition_change.py",
            "self.isr, self.elr, self.recovery = (leader,), (), RECOVERING",
            "self.isr, self.elr, self.recovery = (leader, *self.isr), self.elr, RECOVERING",
        ),
        (
            "an unclean leader recovers",
            "partition_change.py",
            "self.isr, self.elr, self.recovery = (leader,), (), RECOVERING",
            "self.isr, self.elr = (leader,), ()",
        ),
        (
            "the last member stays in sync without eligible leaders",
            "partition_change.py",
            "    if not target.isr and not with_elr:\n        target.isr = partition.isr\n",
            "",
        ),
        (
            "the last leader is remembered",
            "partition_change.py",
            "            target.last_known_elr = (partition.leader,)\n",
            "            pass\n",
        ),
        (
            "the last leader is forgotten once there is a new one",
            "partition_change.py",
            "        elif record.leader >= 0:\n            target.last_known_elr = ()\n",
            "",
        ),
        (
            "a reassignment waits for its whole target",
            "completed_reassignment.py",
            "if target and in_sync and set(target) <= set(in_sync) else",
            "if target and in_sync else",
        ),
        (
            "a reassignment ends when its target is in sync",
            "partition_change.py",
            "if completed is not None and (target.adding or target.removing):",
            "if False:",
        ),
        (
            "only assigned replicas are in sync",
            "alter_partition.py",
            "or not set(isr) <= set(partition.replicas)",
            "",
        ),
        (
            "a replica that has restarted is not in sync",
            "alter_partition.py",
            "if epochs.get(replica, _ANY_EPOCH) not in (_ANY_EPOCH, broker.broker_epoch):",
            "if False:",
            _REFUSED,
        ),
        (
            "a fenced replica does not join",
            "alter_partition.py",
            "if broker is None or not broker.active:\n            raise errors.IneligibleReplicaError",
            "if broker is None:\n            raise errors.IneligibleReplicaError",
        ),
        (
            "a proposal builds on the present partition epoch",
            "alter_partition.py",
            "if wanted.partition_epoch < partition.partition_epoch:",
            "if False:",
            _REFUSED,
        ),
        (
            "a former leader proposes nothing",
            "alter_partition.py",
            "if wanted.leader_epoch < partition.leader_epoch:",
            "if False:",
            _REFUSED,
        ),
        (
            "a heartbeat of an earlier process counts for nothing",
            "broker_control.py",
            "    if broker.broker_epoch != broker_epoch:\n",
            "    if broker.broker_epoch < broker_epoch:\n",
            _BEATS,
        ),
        (
            "another process does not take the place of a live one",
            "broker_sessions.py",
            "return session.incarnation_id == broker.incarnation_id and session.last_contact + self.timeout >= now",
            "return False",
        ),
        (
            "replicas in a lost directory leave in-sync sets",
            "broker_control.py",
            "yield from broker_failover.directory_lost(image, broker.broker_id, directory, self._config_of(image))",
            "pass",
        ),
        (
            "a cancelled reassignment keeps the replicas that it removes",
            "reassignments.py",
            "replica for replica in partition.replicas if replica not in partition.adding_replicas)",
            "replica for replica in partition.replicas if replica not in partition.removing_replicas)",
        ),
        (
            "clearing eligible leaders keeps those of partitions that nobody leads",
            "configuration_control.py",
            "if partition.isr and partition.eligible_leader_replicas:",
            "if partition.eligible_leader_replicas:",
        ),
        (
            "partition epochs grow by one",
            "triokafka/broker_stub/metadata/image.py",
            '"partition_epoch": self.partition_epoch + 1',
            '"partition_epoch": self.partition_epoch + bool(record.isr)',
        ),
    )
)
