from __future__ import annotations

import uuid

import pytest

from tests.unit.broker_stub.clusters import cluster, replayed, topic
from triokafka import errors
from triokafka.broker_stub.controller.broker_control import BrokerControl
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.session_fencing import fence_stale
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata import EndpointImage, MetadataImage
from triokafka.broker_stub.metadata.features import SUPPORTED
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE
from triokafka.broker_stub.metadata.lifecycle_values import BrokerHeartbeat, BrokerRegistration
from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest
from triokafka.protocol.stored.cluster_metadata import BrokerRegistrationChangeRecord

SESSION = 9.0
DIRECTORY = uuid.UUID(int=2001)


def control() -> BrokerControl:
    made = BrokerControl(SESSION, lambda image, name: LogConfig())
    made.begin(EMPTY_IMAGE, now=0, cluster_id="cluster-a")
    return made


def registration(broker_id: int = 1, incarnation: int = 1, cluster_id: str = "cluster-a") -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=broker_id,
        incarnation_id=uuid.UUID(int=incarnation),
        cluster_id=cluster_id,
        endpoints=(EndpointImage("PLAINTEXT", "host", 9092),),
        features=SUPPORTED,
        rack="r",
        directories=(uuid.UUID(int=2000 + broker_id),),
    )


class Rig:
    """A `BrokerControl` and the image after its records."""

    def __init__(self, image: MetadataImage | None = None) -> None:
        self.control = control()
        self.image = cluster(brokers=()) if image is None else image

    def apply(self, outcome: Outcome[object]) -> None:
        self.image = replayed(outcome.records, self.image)

    def register(self, now: float = 0.0, *, broker_id: int = 1, incarnation: int = 1) -> int:
        outcome = self.control.register(
            self.image, registration(broker_id, incarnation), now=now, next_offset=self.image.offset + 1
        )
        self.image = replayed(outcome.records, self.image)
        return outcome.response

    def beat(
        self, now: float = 0.0, *, broker_id: int = 1, fence: bool = False, stop: bool = False, behind: int = 0
    ) -> tuple[bool, bool, bool]:
        """Heartbeat with the registered epoch; returns caught up, fenced, should shut down."""
        beat = BrokerHeartbeat(
            broker_id, self.image.brokers[broker_id].broker_epoch, self.image.offset - behind, fence, stop
        )
        outcome = self.control.heartbeat(self.image, beat, now=now)
        self.image = replayed(outcome.records, self.image)
        reply = outcome.response
        return reply.is_caught_up, reply.is_fenced, reply.should_shut_down


def test_new_broker_is_registered_fenced_with_its_offset_as_epoch() -> None:
    rig = Rig()
    offset = rig.image.offset + 1
    assert rig.register() == offset
    made = rig.image.brokers[1]
    assert made.fenced and made.broker_epoch == offset
    assert made.endpoints == (EndpointImage("PLAINTEXT", "host", 9092),)
    assert (made.rack, made.directories, made.features) == ("r", (DIRECTORY,), dict(SUPPORTED))


def test_broker_of_another_cluster_is_refused() -> None:
    with pytest.raises(errors.InconsistentClusterIdError):
        control().register(cluster(brokers=()), registration(cluster_id="b"), now=0.0, next_offset=1)


def test_second_process_with_the_same_id_is_refused_while_the_first_lives_and_taken_after() -> None:
    rig = Rig()
    first = rig.register()
    rig.beat(1.0)
    with pytest.raises(errors.DuplicateBrokerRegistrationError):
        rig.register(1.0 + SESSION, incarnation=2)
    assert rig.register(1.0 + SESSION + 0.001, incarnation=2) > first
    assert rig.image.brokers[1].fenced


def test_fenced_broker_may_be_replaced_at_once() -> None:
    rig = Rig()
    rig.register()
    rig.register(incarnation=2)
    assert rig.image.brokers[1].incarnation_id == uuid.UUID(int=2)


def test_same_process_registers_again_with_its_epoch_and_stays_unfenced() -> None:
    rig = Rig()
    epoch = rig.register()
    rig.beat()
    assert rig.register(2.0) == epoch
    assert not rig.image.brokers[1].fenced


def test_process_that_takes_the_place_of_another_leads_again_in_new_epochs() -> None:
    """The end of its logs may have been lost with the earlier process, and no other node could detect that."""
    rig = Rig()
    for broker_id in (1, 2):
        rig.register(broker_id=broker_id, incarnation=broker_id)
        rig.beat(broker_id=broker_id)
    rig.image = replayed([*topic("t", [1, 2]), *topic("alone", [1], number=8)], rig.image)
    rig.register(SESSION + 1, incarnation=9)
    assert rig.image.topics["t"].partitions[0].leader == 2
    alone = rig.image.topics["alone"].partitions[0]
    assert (alone.leader, alone.isr, alone.leader_epoch) == (-1, (1,), 1)
    rig.beat(SESSION + 1)
    alone = rig.image.topics["alone"].partitions[0]
    assert (alone.leader, alone.leader_epoch) == (1, 2)


def test_broker_that_lacks_a_feature_level_is_refused() -> None:
    old = registration()._replace(features={"metadata.version": (7, 20)})
    with pytest.raises(errors.UnsupportedVersionError, match=r"metadata\.version"):
        control().register(cluster(brokers=()), old, now=0.0, next_offset=1)


def test_heartbeats_of_unknown_brokers_and_old_epochs_are_refused() -> None:
    rig = Rig()
    rig.register()
    with pytest.raises(errors.BrokerIdNotRegisteredError):
        rig.control.heartbeat(rig.image, BrokerHeartbeat(7, 0, 0), now=0.0)
    with pytest.raises(errors.StaleBrokerEpochError):
        rig.control.heartbeat(rig.image, BrokerHeartbeat(1, 0, 0), now=0.0)


def test_broker_is_unfenced_when_it_wants_to_be_and_has_all_metadata() -> None:
    rig = Rig()
    rig.register()
    assert rig.beat(fence=True) == (True, True, False)
    assert rig.beat(behind=1) == (False, True, False)
    assert rig.image.brokers[1].fenced
    assert rig.beat() == (True, False, False)
    assert not rig.image.brokers[1].fenced


def test_fenced_broker_may_stop_at_once() -> None:
    rig = Rig()
    rig.register()
    assert rig.beat(stop=True) == (True, True, True)


def test_heartbeat_that_changes_nothing_writes_nothing() -> None:
    rig = Rig()
    rig.register()
    rig.beat()
    offset = rig.image.offset
    rig.beat(3.0)
    assert rig.image.offset == offset


def test_broker_that_asks_to_be_fenced_loses_its_leaderships() -> None:
    rig = Rig()
    rig.register()
    rig.beat()
    rig.image = replayed(topic("t", [1]), rig.image)
    assert rig.beat(fence=True) == (True, True, False)
    assert rig.image.brokers[1].fenced
    assert rig.image.topics["t"].partitions[0].leader == -1


def test_stopping_broker_waits_until_all_brokers_know_the_new_leaders() -> None:
    rig = Rig()
    for broker_id in (1, 2):
        rig.register(broker_id=broker_id, incarnation=broker_id)
        rig.beat(broker_id=broker_id)
    rig.image = replayed([*topic("t", [1, 2]), *topic("alone", [1], number=8)], rig.image)
    assert rig.beat(stop=True) == (True, False, False)
    assert rig.image.brokers[1].in_controlled_shutdown and not rig.image.brokers[1].fenced
    assert rig.image.topics["t"].partitions[0].leader == 2
    assert rig.image.topics["alone"].partitions[0].leader == 1
    assert rig.beat(stop=True) == (True, False, False)
    rig.beat(broker_id=2)
    assert rig.beat(stop=True) == (True, True, True)
    assert rig.image.brokers[1].fenced
    assert rig.image.topics["alone"].partitions[0].leader == -1


def test_broker_that_stops_may_be_replaced_before_it_is_fenced() -> None:
    """After a change of the controller, the new one may not know yet that the process has ended."""
    rig = Rig()
    for broker_id in (1, 2):
        rig.register(broker_id=broker_id)
        rig.beat(broker_id=broker_id)
    rig.image = replayed(topic("t", [1, 2]), rig.image)
    rig.beat(stop=True)
    rig.register(incarnation=2)
    broker = rig.image.brokers[1]
    assert (broker.incarnation_id, broker.fenced, broker.in_controlled_shutdown) == (uuid.UUID(int=2), True, False)


def test_only_broker_stops_at_once() -> None:
    """(replication factor one is left alone)"""
    rig = Rig()
    rig.register()
    rig.beat()
    rig.image = replayed(topic("t", [1]), rig.image)
    assert rig.beat(stop=True) == (True, True, True)


def test_silent_brokers_are_fenced_one_at_a_time_the_oldest_first() -> None:
    rig = Rig()
    for broker_id, at in ((1, 1.0), (2, 0.0), (3, 5.0)):
        rig.register(at, broker_id=broker_id, incarnation=broker_id)
        rig.beat(at, broker_id=broker_id)
    assert rig.control.sessions.oldest(rig.image) == (2, SESSION)
    late = 1.0 + SESSION + 0.001
    for expected in (2, 1, None):
        outcome = fence_stale(rig.control, rig.image, now=late)
        assert outcome.response == expected
        rig.image = replayed(outcome.records, rig.image)
    assert [rig.image.brokers[i].fenced for i in (1, 2, 3)] == [True, True, False]


def test_fence_record_comes_last_and_names_the_epoch() -> None:
    image = cluster(topic("t", [1]))
    records = control().fence(image, image.brokers[1])
    last = records[-1]
    assert isinstance(last, BrokerRegistrationChangeRecord)
    assert (last.broker_id, last.broker_epoch, last.fenced) == (1, 101, 1)
    assert len(records) == 2


def test_resumed_controller_gives_every_broker_a_new_session() -> None:
    rig = Rig()
    rig.register()
    rig.beat()
    rig.control.sessions.resume(100.0)
    assert rig.control.sessions.oldest(rig.image) == (1, 100.0 + SESSION)
    assert fence_stale(rig.control, rig.image, now=105.0).records == []


def test_new_controller_gives_every_broker_a_session_and_lets_its_own_register_at_once() -> None:
    """Its own broker ended with the earlier process; if it does not return, it is fenced like any other."""
    control_ = control()
    image = cluster(brokers=(1, 2))
    control_.begin(image, now=5.0, own_id=1, cluster_id="cluster-a")
    assert control_.sessions.oldest(image) == (1, 5.0 + SESSION)
    assert control_.register(image, registration(1, 9), now=5.0, next_offset=50).response == 50
    with pytest.raises(errors.DuplicateBrokerRegistrationError):
        control_.register(image, registration(2, 9), now=5.0, next_offset=50)


def test_broker_that_will_not_return_is_forgotten_and_others_lead() -> None:
    control_ = control()
    image = cluster(topic("t", [1, 2]), brokers=(1, 2))
    outcome = control_.unregister(image, UnregisterBrokerRequest(broker_id=1))
    after = replayed(outcome.records, image)
    assert set(after.brokers) == {2}
    assert (after.topics["t"].partitions[0].leader, after.topics["t"].partitions[0].isr) == (2, (2,))
    with pytest.raises(errors.BrokerIdNotRegisteredError):
        control_.unregister(image, UnregisterBrokerRequest(broker_id=9))


def test_broker_is_caught_up_when_it_has_applied_its_registration() -> None:
    """As in Kafka 4: a metadata log that grows all the time does not keep a broker fenced."""
    rig = Rig()
    epoch = rig.register()
    rig.image = replayed(topic("t", [1], isr=[1], leader=-1), rig.image)
    for offset, caught_up in ((epoch - 1, False), (epoch, True)):
        reply = rig.control.heartbeat(rig.image, BrokerHeartbeat(1, epoch, offset), now=0.0).response
        assert (reply.is_caught_up, reply.is_fenced) == (caught_up, not caught_up)


def test_session_of_the_node_that_led_the_quorum_before_began_when_it_fell_silent() -> None:
    """At most half a session timeout counts, so that a broker which was only cut off has time for a heartbeat."""
    image = cluster(brokers=(1, 2))
    for silence, ends in ((1.5, 5.0 + SESSION - 1.5), (100.0, 5.0 + SESSION / 2)):
        control_ = control()
        control_.begin(image, now=5.0, cluster_id="cluster-a", silent=(2, silence))
        assert control_.sessions.oldest(image) == (2, ends)
        control_.begin(image, now=5.0, cluster_id="cluster-a", silent=(7, silence))
        assert control_.sessions.oldest(image) == (1, 5.0 + SESSION)
