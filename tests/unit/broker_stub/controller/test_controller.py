from __future__ import annotations

import errno
import itertools
import random
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.clusters import (
    CONFIG,
    DATA,
    ENDPOINT,
    MemoryWorld,
    codes,
    creation,
    let_in,
    local,
    new_controller,
    run_controller,
    running,
    wanted,
)
from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import Controller
from triokafka.broker_stub.controller.event_queue import MAX_UNCOMMITTED, MAX_WAITING
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage, features
from triokafka.broker_stub.metadata.lifecycle_values import BrokerHeartbeat
from triokafka.broker_stub.metadata.producer_id_block import ProducerIdBlock
from triokafka.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from triokafka.protocol.api.create_topics import CreateTopicsRequest
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest
from triokafka.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from triokafka.protocol.stored.cluster_metadata import FeatureLevelRecord
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault

LOG = f"{DATA}/__cluster_metadata-0/00000000000000000000.log"
T = TypeVar("T")
DISK_FULL = DiskFault("write", "*.log", errno.ENOSPC, partial=40)


class SlowDisk(MemoryWorld):
    """Blocking work takes until ``gate`` is open, and can be cancelled."""

    gate: trio.Event | None = None

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        if self.gate is not None:
            await self.gate.wait()
        return function(*args)


def same(left: MetadataImage, right: MetadataImage) -> bool:
    """Return images that are equal except for their log positions and the times of registrations."""
    return (left.topics, left.topics_by_id, left.configs, left.features, left.producer_ids, left.colliding_names) == (
        right.topics,
        right.topics_by_id,
        right.configs,
        right.features,
        right.producer_ids,
        right.colliding_names,
    )


async def leads_again(controller: Controller) -> None:
    """Wait until a controller that could not write its log leads the quorum in a new epoch."""
    epoch = controller.state.epoch
    with trio.fail_after(5):
        while controller.state.epoch == epoch:
            await trio.sleep(0.001)


async def allocate(controller: Controller) -> ProducerIdBlock:
    """A block of producer ids for the node's broker."""
    epoch = controller.image.brokers[CONFIG.node_id].broker_epoch
    return await local(controller).allocate_producer_ids(CONFIG.node_id, epoch)


class TestSessions:
    @pytest.mark.parametrize("outcome", ["answered", "refused"])
    async def test_broker_whose_heartbeat_waits_is_not_silent(
        self, outcome: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Changes before it may take the controller longer than a session, such as the logs of many partitions."""
        async with running(MemoryWorld()) as controller, trio.open_nursery() as nursery:
            sessions, submit = controller.state.brokers.sessions, controller.submit
            arrived, go_on = trio.Event(), trio.Event()

            async def late(name: str, compute: Any, **more: Any) -> Any:
                arrived.set()
                await go_on.wait()
                if outcome == "refused":
                    raise errors.NotControllerError("busy")
                return await submit(name, compute, **more)

            monkeypatch.setattr(controller, "submit", late)
            before = sessions.oldest(controller.image)
            assert before is not None
            epoch = controller.image.brokers[1].broker_epoch
            beat = BrokerHeartbeat(1, epoch, controller.image.offset, want_fence=False, want_shut_down=False)

            async def send() -> None:
                with suppress(errors.NotControllerError):
                    await local(controller).broker_heartbeat(beat)

            await trio.sleep(0.01)
            nursery.start_soon(send)
            await arrived.wait()
            assert sessions.oldest(controller.image) is None
            go_on.set()
            await trio.testing.wait_all_tasks_blocked(0.05)
            after = sessions.oldest(controller.image)
            assert after is not None
            assert (after[1] > before[1]) is (outcome == "answered")

    async def test_heartbeat_with_another_epoch_keeps_no_session(self) -> None:
        async with running(MemoryWorld()) as controller:
            sessions = controller.state.brokers.sessions
            before = sessions.oldest(controller.image)
            beat = BrokerHeartbeat(1, 77, controller.image.offset, want_fence=False, want_shut_down=False)
            with pytest.raises(errors.StaleBrokerEpochError):
                await local(controller).broker_heartbeat(beat)
            assert sessions.oldest(controller.image) == before


class TestStart:
    async def test_new_cluster_has_features_and_a_registered_broker(self) -> None:
        async with running(MemoryWorld()) as controller:
            assert features.finalized(controller.image, controller.metadata.kraft_version) == {
                "metadata.version": 25,
                "kraft.version": 1,
                "group.version": 1,
                "transaction.version": 2,
                "eligible.leader.replicas.version": 1,
            }
            broker = controller.image.brokers[1]
            assert not broker.fenced and broker.broker_epoch > 0
            assert broker.endpoints == (ENDPOINT,)
            assert broker.directories == (controller.metadata.identity.directory_ids[DATA],)

    async def test_restart_gives_the_same_image(self) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            await local(controller).create_topics(
                creation(wanted("a.b", 3, configs={"retention.ms": "5"}), wanted("c"))
            )
            await local(controller).delete_topics(DeleteTopicsRequest(topic_names=["c"], timeout_ms=1000))
            await local(controller).create_partitions(
                CreatePartitionsRequest(
                    topics=[CreatePartitionsTopic(name="a.b", count=5, assignments=None)], timeout_ms=1000
                )
            )
            await allocate(controller)
            before, cluster_id = controller.image, controller.metadata.cluster_id
        async with running(world, register=False) as controller:
            assert same(controller.image, before)
            assert controller.image.brokers == before.brokers
            assert controller.metadata.cluster_id == cluster_id

    async def test_every_start_leads_a_new_epoch(self) -> None:
        world = MemoryWorld()
        epochs = []
        for _ in range(3):
            async with running(world, register=False) as controller:
                epochs.append(controller.image.epoch)
        assert epochs == [1, 2, 3]
        state = world.disk.read_file(f"{DATA}/__cluster_metadata-0/quorum-state")
        assert b'"leaderEpoch":3' in state and b'"data_version":1' in state

    async def test_broker_that_died_leads_its_partitions_again_in_a_new_epoch(self) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            await local(controller).create_topics(creation(wanted("t")))
            before = controller.image.topics["t"].partitions[0]
        async with running(world) as controller:
            after = controller.image.topics["t"].partitions[0]
            assert after.leader == 1 and after.leader_epoch > before.leader_epoch

    async def test_broker_that_stops_in_order_gives_up_its_partitions(self) -> None:
        world = MemoryWorld()
        async with running(world, register=False) as controller:
            life = await let_in(controller, world)
            await local(controller).create_topics(creation(wanted("t")))
            await life.leave()
            await life.leave()
            assert controller.image.brokers[1].fenced
            partition = controller.image.topics["t"].partitions[0]
            # It may lead again, being the last that was in sync (KIP-966).
            assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (-1, (), (1,))
            await controller.close()
        async with running(world) as controller:
            assert controller.image.topics["t"].partitions[0].leader == 1

    async def test_log_of_the_future_is_refused(self) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            await controller.submit(
                "test", lambda image: Outcome([FeatureLevelRecord(name="metadata.version", feature_level=99)], None)
            )
        with pytest.raises(errors.UnsupportedVersionError, match=r"metadata\.version at level 99"):
            await new_controller(world).open()

    async def test_directory_of_another_node_is_refused(self) -> None:
        world = MemoryWorld()
        async with running(world):
            pass
        with pytest.raises(errors.ConfigurationError, match="belongs to node 1"):
            await new_controller(world, BrokerConfig.for_tests(node_id=2, log_dirs=(DATA,))).open()

    async def test_answered_changes_survive_a_power_cut(self) -> None:
        for seed in range(20):
            world = MemoryWorld()
            async with running(world) as controller:
                for number in range(3):
                    assert codes(await local(controller).create_topics(creation(wanted(f"t{number}", 2)))) == [0]
                before = controller.image
            world.disk.crash(random.Random(seed))
            async with running(world, register=False) as controller:
                assert same(controller.image, before)


class TestSnapshot:
    """A log that was cut at its beginning, with a snapshot beside it."""

    async def cut(self, *, snapshot: bool) -> tuple[MemoryWorld, MetadataImage]:
        world = MemoryWorld()
        async with running(world) as controller:
            await local(controller).create_topics(creation(wanted("early", 2)))
            middle = controller.image
            if snapshot:
                await controller.take_snapshot()
            await local(controller).create_topics(creation(wanted("late")))
            image = controller.image
            await controller.close()
        directory = f"{DATA}/__cluster_metadata-0"
        log = PartitionLog.open(world.disk, directory, TopicPartition("__cluster_metadata", 0), LogConfig(), now_ms=0)
        rest = bytes(log.read(middle.offset + 1, 1 << 20).records)
        log.truncate_fully_and_start_at(middle.offset + 1, now_ms=0)
        log.append_as_follower(rest, now_ms=0)
        log.close()
        return world, image

    async def test_state_is_the_snapshot_and_the_records_after_it(self) -> None:
        world, image = await self.cut(snapshot=True)
        async with running(world, register=False) as controller:
            assert same(controller.image, image)
            assert features.finalized(controller.image, controller.metadata.kraft_version)["kraft.version"] == 1
            assert codes(await local(controller).create_topics(creation(wanted("early")))) == [
                errors.TopicAlreadyExistsError.code
            ]
        async with running(world) as controller:
            assert codes(await local(controller).create_topics(creation(wanted("next")))) == [0]

    async def test_log_without_its_beginning_and_without_a_snapshot_is_refused(self) -> None:
        world, _ = await self.cut(snapshot=False)
        with pytest.raises(errors.KafkaStorageError, match="no snapshot leads up to it"):
            await new_controller(world).open()


class TestFailedAppend:
    async def test_failed_append_answers_with_an_error_and_restores_the_committed_state(self) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            await local(controller).create_topics(creation(wanted("kept")))
            before = controller.image
            heal = world.disk.inject(DISK_FULL)
            with pytest.raises(errors.KafkaStorageError):
                await local(controller).create_topics(creation(wanted("lost")))
            assert controller.image is before
            heal()
            assert codes(await local(controller).create_topics(creation(wanted("next"), wanted("lost")))) == [0, 0]
            after = controller.image
        async with running(world, register=False) as controller:
            assert set(controller.image.topics) == {"kept", "next", "lost"}
            assert same(controller.image, after)

    async def test_only_controller_with_a_full_disk_refuses_each_change_at_once_and_continues_when_there_is_room(
        self,
    ) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            epoch = controller.state.epoch
            make_room = world.disk.inject(DiskFault("write", "*", errno.ENOSPC))
            for _ in range(3):
                with trio.fail_after(60), pytest.raises(errors.KafkaStorageError):
                    await local(controller).create_topics(creation(wanted("lost"), timeout_ms=3_600_000))
            make_room()
            assert codes(await local(controller).create_topics(creation(wanted("next")))) == [0]
            assert controller.state.epoch == epoch
        async with running(world, register=False) as controller:
            assert set(controller.image.topics) == {"next"}

    @pytest.mark.parametrize("path", ["*.log", "*quorum-state*"])
    async def test_only_controller_that_cannot_store_a_new_epoch_refuses_changes_until_it_can(self, path: str) -> None:
        """It has to become the leader again, as after a failed sync of its log."""
        world = MemoryWorld()
        async with running(world) as controller:
            make_room = world.disk.inject(DiskFault("write", path, errno.ENOSPC))
            raft = controller.metadata.raft
            raft.resign(raft.leader.epoch)
            with trio.fail_after(60):
                while controller.is_active:
                    await trio.sleep(0.01)
            for _ in range(3):
                with trio.fail_after(60), pytest.raises(errors.KafkaStorageError):
                    await local(controller).create_topics(creation(wanted("lost"), timeout_ms=3_600_000))
            make_room()
            with trio.fail_after(60):
                while not controller.is_active or raft.refusal is not None:
                    await trio.sleep(0.01)
            assert codes(await local(controller).create_topics(creation(wanted("next")))) == [0]
        async with running(world, register=False) as controller:
            assert set(controller.image.topics) == {"next"}

    async def test_log_whose_sync_failed_is_not_written_again_before_a_restart(self) -> None:
        """The content of the disk is unknown then, so no answer may depend on it."""
        world = MemoryWorld()
        async with running(world) as controller:
            before = controller.image
            heal = world.disk.inject(DiskFault("sync", LOG, errno.EIO, times=1))
            with pytest.raises(errors.KafkaStorageError):
                await local(controller).create_topics(creation(wanted("perhaps")))
            heal()
            with pytest.raises(errors.KafkaStorageError, match="until a restart"):
                await local(controller).create_topics(creation(wanted("next")))
            assert controller.image is before
        async with running(world) as controller:
            assert set(controller.image.topics) <= {"perhaps"}
            assert codes(await local(controller).create_topics(creation(wanted("next")))) == [0]

    async def test_nothing_is_written_any_more_once_the_log_cannot_be_cut_back(self) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            heals = [world.disk.inject(DiskFault(kind, "*.log", errno.EIO)) for kind in ("sync", "truncate")]
            with pytest.raises(errors.KafkaStorageError):
                await local(controller).create_topics(creation(wanted("lost")))
            for heal in heals:
                heal()
            with pytest.raises(errors.KafkaStorageError, match="until a restart"):
                await local(controller).create_topics(creation(wanted("next")))
            assert not controller.image.topics

    async def test_operations_that_were_committed_together_fail_together(self) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            world.disk.inject(DISK_FULL)
            failed: list[str] = []

            async def create(name: str) -> None:
                try:
                    await local(controller).create_topics(creation(wanted(name)))
                except (errors.KafkaStorageError, errors.NotControllerError):  # it leads no more after a failure
                    failed.append(name)

            async with trio.open_nursery() as nursery:
                for name in "abc":
                    nursery.start_soon(create, name)
            assert sorted(failed) == ["a", "b", "c"]
            assert not controller.image.topics


class TestQueue:
    async def test_publishers_receive_every_change_in_order_and_before_the_answer(self) -> None:
        heard: list[tuple[int, set[str]]] = []

        def publisher(delta: MetadataDelta, image: MetadataImage) -> None:
            heard.append((image.offset, set(image.topics)))

        async with running(MemoryWorld()) as controller:
            controller.metadata.publisher.subscribe(publisher)
            assert heard == [(controller.image.offset, set())]
            await local(controller).create_topics(creation(wanted("a")))
            assert heard[-1] == (controller.image.offset, {"a"})

            async with trio.open_nursery() as nursery:
                for name in "bcd":
                    nursery.start_soon(local(controller).create_topics, creation(wanted(name)))
        offsets = [offset for offset, _ in heard]
        assert offsets == sorted(set(offsets))
        assert [len(topics) for _, topics in heard] == [0, 1, 2, 3, 4]

    async def test_delta_leads_from_the_image_before_to_the_image(self) -> None:
        links: list[tuple[MetadataImage, MetadataImage]] = []
        async with running(MemoryWorld()) as controller:
            controller.metadata.publisher.subscribe(lambda delta, image: links.append((delta.base, image)))
            for name in "abc":
                await local(controller).create_topics(creation(wanted(name)))
        for (_, before), (base, _) in itertools.pairwise(links):
            assert base is before

    async def test_publisher_that_fails_does_not_keep_the_others_from_hearing(self) -> None:
        heard: list[int] = []

        def broken(delta: MetadataDelta, image: MetadataImage) -> None:
            raise RuntimeError("cannot follow")

        async with running(MemoryWorld()) as controller:
            controller.metadata.publisher.subscribe(broken)
            controller.metadata.publisher.subscribe(lambda delta, image: heard.append(image.offset))
            assert codes(await local(controller).create_topics(creation(wanted("t")))) == [0]
        assert len(heard) == 2

    async def test_waiting_operations_build_on_each_other_and_share_one_sync(self) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            syncs: list[str] = []
            world.disk.before_operation = lambda kind, path, size: (
                syncs.append(path) if kind == "sync" and path == LOG else None
            )
            answers: list[int] = []

            async def create() -> None:
                answers.extend(codes(await local(controller).create_topics(creation(wanted("same")))))

            async with trio.open_nursery() as nursery:
                for _ in range(MAX_UNCOMMITTED):
                    nursery.start_soon(create)
            assert sorted(answers) == [0] + [errors.TopicAlreadyExistsError.code] * (MAX_UNCOMMITTED - 1)
            assert len(syncs) == 1

    async def test_callers_wait_for_room_when_the_queue_is_full(self) -> None:
        world = MemoryWorld()
        controller = new_controller(world)
        await controller.open()
        begun: list[MetadataImage] = []

        def compute(image: MetadataImage) -> Outcome[None]:
            begun.append(image)
            return Outcome([], None)

        async with trio.open_nursery() as callers:
            for _ in range(MAX_WAITING + 20):
                callers.start_soon(controller.queue.submit, "test", compute)
            await trio.testing.wait_all_tasks_blocked()
            assert controller.queue._send.statistics().current_buffer_used == MAX_WAITING
            async with trio.open_nursery() as runner:
                runner.start_soon(controller.metadata.run)
                while controller.queue._new_term is None:  # this node is elected, and its queue does not run yet
                    await trio.sleep(0.001)
                runner.start_soon(controller.run)
                while len(begun) < MAX_WAITING + 20:
                    await trio.lowlevel.checkpoint()
                runner.cancel_scope.cancel()
        assert len(begun) == MAX_WAITING + 20

    async def test_expired_request_changes_nothing(self) -> None:
        async with running(MemoryWorld()) as controller:
            late = CreateTopicsRequest(topics=[wanted("t")], timeout_ms=0)
            with pytest.raises(errors.RequestTimedOutError):
                await local(controller).create_topics(late)
            assert not controller.image.topics

    async def test_operation_whose_caller_was_cancelled_is_skipped(self) -> None:
        world = MemoryWorld()
        controller = new_controller(world)
        await controller.open()
        begun: list[MetadataImage] = []

        def compute(image: MetadataImage) -> Outcome[None]:
            begun.append(image)
            return Outcome([], None)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(controller.submit, "test", compute)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_controller, controller)
            await let_in(controller, world)
            assert not begun
            nursery.cancel_scope.cancel()

    async def test_caller_that_gives_up_during_the_commit_does_not_stop_it(self) -> None:
        async with running(MemoryWorld()) as controller:
            with trio.CancelScope() as scope:
                controller.metadata.publisher.subscribe(lambda delta, image: scope.cancel() if image.topics else None)
                await local(controller).create_topics(creation(wanted("t")))
            assert set(controller.image.topics) == {"t"}
            assert codes(await local(controller).create_topics(creation(wanted("u")))) == [0]

    async def test_controller_that_is_cancelled_during_a_commit_still_answers_it(self) -> None:
        world = SlowDisk()
        controller = new_controller(world)
        await controller.open()
        answers: list[int] = []

        async def create() -> None:
            answers.extend(codes(await local(controller).create_topics(creation(wanted("t")))))

        async with trio.open_nursery() as callers, trio.open_nursery() as runner:
            runner.start_soon(run_controller, controller)
            await let_in(controller, world)
            world.gate = trio.Event()
            callers.start_soon(create)
            await trio.testing.wait_all_tasks_blocked()
            runner.cancel_scope.cancel()
            await trio.lowlevel.cancel_shielded_checkpoint()
            world.gate.set()
        assert answers == [0] and set(controller.image.topics) == {"t"}

    async def test_pending_calls_fail_when_the_controller_stops(self) -> None:
        """(resignation fails pending calls)"""
        controller = new_controller(MemoryWorld())
        await controller.open()
        failed: list[Exception] = []

        async def create() -> None:
            try:
                await local(controller).create_topics(creation(wanted("t")))
            except errors.NotControllerError as error:
                failed.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(create)
            await trio.testing.wait_all_tasks_blocked()
            await controller.close()
        assert len(failed) == 3
        with pytest.raises(errors.NotControllerError):
            await local(controller).create_topics(creation(wanted("t")))
        await controller.close()

    async def test_failure_in_an_operation_fails_its_caller_alone(self) -> None:
        async with running(MemoryWorld()) as controller:

            def broken(image: MetadataImage) -> Outcome[Any]:
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await controller.submit("test", broken)
            assert codes(await local(controller).create_topics(creation(wanted("t")))) == [0]


class TestOperations:
    async def test_producer_ids_come_in_blocks_that_are_never_given_twice(self) -> None:
        world = MemoryWorld()
        blocks = []
        for _ in range(3):
            async with running(world) as controller:
                blocks += [await allocate(controller) for _ in range(2)]
        assert [tuple(block) for block in blocks] == [(start, 1000) for start in range(0, 6000, 1000)]
        assert list(blocks[1].ids)[:2] == [1000, 1001]

    async def test_producer_ids_need_a_registered_broker(self) -> None:
        async with running(MemoryWorld(), register=False) as controller:
            with pytest.raises(errors.StaleBrokerEpochError):
                await local(controller).allocate_producer_ids(CONFIG.node_id, 0)

    async def test_configuration_change_applies_to_the_topic(self) -> None:
        async with running(MemoryWorld()) as controller:
            await local(controller).create_topics(creation(wanted("t")))
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=2,
                        resource_name="t",
                        configs=[AlterableConfig(name="retention.ms", config_operation=0, value="5")],
                    )
                ]
            )
            changed: list[set[tuple[int, str]]] = []
            controller.metadata.publisher.subscribe(lambda delta, image: changed.append(delta.changed_configs))
            await local(controller).incremental_alter_configs(request)
            assert changed[-1] == {(2, "t")}
            assert controller.state.configuration.effective.topic_config_of(controller.image)("t").retention_ms == 5

    async def test_topic_ids_are_random_and_not_reused(self) -> None:
        async with running(MemoryWorld()) as controller:
            ids: set[uuid.UUID] = set()
            for _ in range(3):
                (made,) = (await local(controller).create_topics(creation(wanted("t")))).topics
                ids.add(made.topic_id)
                await local(controller).delete_topics(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000))
            assert len(ids) == 3
