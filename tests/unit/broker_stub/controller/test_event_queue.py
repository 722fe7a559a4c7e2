"""The event queue over a scripted metadata log: the test controls commits and leadership."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from tests.unit.broker_stub.clusters import CONFIG, MemoryWorld, cluster
from triokafka import errors
from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.event_queue import MAX_UNCOMMITTED, EventQueue
from triokafka.broker_stub.controller.outcome import Outcome, Steps
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.broker_stub.metadata.publisher import MetadataFollower
from triokafka.broker_stub.raft.metadata_log_interface import MetadataLogListener
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import TopicRecord

EPOCH = 3


class ScriptedLog:
    """A metadata log that commits, drops and loses its leadership when the test makes it."""

    def __init__(self, listener: MetadataLogListener, end_offset: int) -> None:
        self.listener = listener
        self.failure: errors.KafkaError | None = None
        self.epoch = EPOCH
        self.end_offset = self.committed_end = end_offset
        self.appends: list[tuple[int, int]] = []
        self.refuse: errors.KafkaError | None = None

    def append(self, records: Sequence[Struct], epoch: int, *, metadata_version: int) -> int:
        if self.refuse is not None:
            raise self.refuse
        assert epoch == self.epoch and metadata_version == 25
        self.end_offset += len(records)
        self.appends.append((self.end_offset, epoch))
        return self.end_offset

    def commit(self, end_offset: int | None = None) -> None:
        self.committed_end = self.end_offset if end_offset is None else end_offset
        self.listener.committed(self.committed_end)

    def drop(self) -> None:
        self.end_offset = self.committed_end
        self.listener.rolled_back(errors.KafkaStorageError("disk full"))

    def lose(self) -> None:
        self.end_offset = self.committed_end
        self.listener.lost_leadership(self.epoch)

    def lead(self, epoch: int, image: MetadataImage) -> None:
        self.epoch, self.end_offset, self.committed_end = epoch, image.offset + 1, image.offset + 1
        self.listener.became_leader(epoch, image)


class Rig:
    """A running queue with its log, its published images, and the responses to callers."""

    def __init__(self, nursery: trio.Nursery) -> None:
        world = MemoryWorld()
        self.state = ControllerState(CONFIG, pick=lambda below: 0, new_id=uuid.uuid4)
        self.state.load(cluster()._replace(epoch=EPOCH))
        self.published: list[set[str]] = []
        self.answers: dict[str, Any] = {}
        logs: list[ScriptedLog] = []

        def new_log(listener: MetadataLogListener) -> ScriptedLog:
            logs.append(ScriptedLog(listener, self.state.next_offset))
            return logs[0]

        self.queue = EventQueue(world, self.state, new_log, self._publish)
        self.log = logs[0]
        self._nursery = nursery

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.published.append(set(image.topics))

    async def _submit(self, name: str, compute: Any) -> None:
        try:
            self.answers[name] = await self.queue.submit(name, compute)
        except errors.KafkaError as error:
            self.answers[name] = type(error)

    async def create(self, *names: str) -> None:
        """Begin an operation per name that creates a topic and answers with the topics that it saw before."""
        for name in names:
            record = TopicRecord(name=name, topic_id=uuid.uuid4())
            self._nursery.start_soon(
                self._submit, name, lambda image, record=record: Outcome([record], sorted(image.topics))
            )
            await wait_all_tasks_blocked()

    async def look(self, name: str) -> None:
        """Begin an operation that changes nothing and answers with the topics that it sees."""
        self._nursery.start_soon(self._submit, name, lambda image: Outcome([], sorted(image.topics)))
        await wait_all_tasks_blocked()

    async def settle(self) -> None:
        await wait_all_tasks_blocked()


@asynccontextmanager
async def running() -> AsyncIterator[Rig]:
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        nursery.start_soon(rig.queue.run)
        await wait_all_tasks_blocked()
        yield rig
        rig.log.lose()  # a log that stops says so
        rig.queue.stop()


async def test_answer_waits_for_the_commitment() -> None:
    async with running() as rig:
        await rig.create("a")
        assert rig.answers == {} and rig.published == [] and not rig.state.committed.topics
        rig.log.commit()
        await rig.settle()
        assert rig.answers == {"a": []} and rig.published == [{"a"}]


async def test_later_operations_build_on_changes_that_are_not_committed() -> None:
    async with running() as rig:
        await rig.create("a", "b", "c")
        assert len(rig.log.appends) == 3 and rig.answers == {}
        rig.log.commit()
        await rig.settle()
        assert rig.answers == {"a": [], "b": ["a"], "c": ["a", "b"]}
        assert rig.published == [{"a"}, {"a", "b"}, {"a", "b", "c"}]


async def test_commitment_of_some_answers_only_those() -> None:
    async with running() as rig:
        await rig.create("a", "b", "c")
        rig.log.commit(rig.log.appends[1][0])
        await rig.settle()
        assert rig.answers.keys() == {"a", "b"} and set(rig.state.committed.topics) == {"a", "b"}
        rig.log.commit()
        await rig.settle()
        assert rig.answers.keys() == {"a", "b", "c"}


async def test_operation_without_records_waits_for_the_changes_that_it_saw() -> None:
    async with running() as rig:
        await rig.look("before")
        assert rig.answers == {"before": []}
        await rig.create("a")
        await rig.look("after")
        assert "after" not in rig.answers
        rig.log.commit()
        await rig.settle()
        assert rig.answers["after"] == ["a"]


async def test_lost_leadership_fails_waiters_and_restores_the_committed_image() -> None:
    async with running() as rig:
        await rig.create("a")
        rig.log.commit()
        await rig.settle()
        committed = rig.state.committed
        await rig.create("b", "c")
        await rig.look("d")
        rig.log.lose()
        await rig.settle()
        assert rig.answers == {"a": [], **dict.fromkeys("bcd", errors.NotControllerError)}
        assert rig.state.image is rig.state.committed is committed and rig.published == [{"a"}]


async def test_change_that_was_committed_before_the_leadership_was_lost_is_answered() -> None:
    async with running() as rig:
        await rig.create("a", "b")
        rig.log.commit(rig.log.appends[0][0])
        rig.log.lose()  # before the queue has processed the commitment
        await rig.settle()
        assert rig.answers == {"a": [], "b": errors.NotControllerError}
        assert set(rig.state.committed.topics) == {"a"} and rig.published == [{"a"}]


async def test_operations_are_refused_until_this_node_leads_again() -> None:
    async with running() as rig:
        await rig.create("a")
        rig.log.lose()
        await rig.create("b")
        assert rig.answers == dict.fromkeys("ab", errors.NotControllerError)
        rig.log.lead(EPOCH + 2, rig.state.committed._replace(offset=50))
        await rig.create("c")
        assert rig.log.appends[-1] == (52, EPOCH + 2)
        rig.log.commit()
        await rig.settle()
        assert rig.answers["c"] == [] and rig.state.committed.epoch == EPOCH + 2


async def test_loss_of_an_earlier_epoch_does_not_end_the_present_one() -> None:
    async with running() as rig:
        rig.log.lose()
        rig.log.lead(EPOCH + 1, rig.state.committed)
        await rig.settle()
        rig.log.listener.lost_leadership(EPOCH)
        await rig.create("a")
        rig.log.commit()
        await rig.settle()
        assert rig.answers == {"a": []}


async def test_dropped_records_fail_their_callers_and_the_queue_continues() -> None:
    async with running() as rig:
        await rig.create("a", "b")
        rig.log.drop()
        await rig.create("c")
        rig.log.commit()
        await rig.settle()
        assert rig.answers == {"a": errors.KafkaStorageError, "b": errors.KafkaStorageError, "c": []}
        assert set(rig.state.committed.topics) == {"c"}


async def test_append_that_the_log_refuses_leaves_the_changes_before_it() -> None:
    async with running() as rig:
        await rig.create("a")
        rig.log.refuse = errors.KafkaStorageError("disk full")
        await rig.create("b")
        rig.log.refuse = None
        await rig.create("c")
        rig.log.commit()
        await rig.settle()
        assert rig.answers == {"a": [], "b": errors.KafkaStorageError, "c": ["a"]}


async def test_caller_that_is_cancelled_does_not_take_its_change_back() -> None:
    async with running() as rig:
        with trio.CancelScope() as caller:
            async with trio.open_nursery() as nursery:
                record = TopicRecord(name="a", topic_id=uuid.uuid4())
                nursery.start_soon(rig.queue.submit, "a", lambda image: Outcome([record], None))
                await rig.settle()
                caller.cancel()
        await rig.create("b")
        rig.log.commit()
        await rig.settle()
        assert rig.answers == {"b": ["a"]} and set(rig.state.committed.topics) == {"a", "b"}


async def test_operation_in_steps_that_loses_its_image_meanwhile_fails() -> None:
    async with running() as rig:
        await rig.create("a")

        def compute(image: MetadataImage) -> Steps[None]:
            rig.log.drop()  # undoes the uncommitted changes of the image
            yield 1
            return Outcome([TopicRecord(name="b", topic_id=uuid.uuid4())], None)

        with pytest.raises(errors.NotControllerError):
            await rig.queue.submit("b", compute)
        await rig.settle()
        assert rig.answers == {"a": errors.KafkaStorageError} and not rig.state.image.topics


async def test_number_of_uncommitted_operations_is_bounded() -> None:
    async with running() as rig:
        await rig.create(*(f"t{number}" for number in range(MAX_UNCOMMITTED + 3)))
        assert len(rig.log.appends) == MAX_UNCOMMITTED
        rig.log.commit()
        await rig.settle()
        assert len(rig.log.appends) == MAX_UNCOMMITTED + 3


async def test_log_that_takes_no_more_records_is_named_to_every_caller() -> None:
    async with running() as rig:
        rig.log.failure = errors.KafkaStorageError("cannot be written since: broken")
        await rig.look("a")
        assert rig.answers == {"a": errors.KafkaStorageError}


async def test_stopped_queue_answers_appended_operations_before_it_ends() -> None:
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        nursery.start_soon(rig.queue.run)
        await rig.create("a")
        rig.queue.stop()
        await rig.settle()
        assert rig.answers == {}
        rig.log.commit()
    assert rig.answers == {"a": []}


STEPS = st.lists(st.sampled_from(["create", "look", "commit", "commit one", "drop", "lose", "lead"]), max_size=40)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_every_caller_gets_the_answer_that_fits_the_log(steps: list[str]) -> None:
    """Model: the topics of committed appends are exactly the successes, in order; nothing else is ever published."""

    async def play() -> None:
        async with running() as rig:
            number, leads = 0, True
            waiting: list[tuple[str, int]] = []  # names in flight, with the end offset of each
            succeeded: list[str] = []
            for step in steps:
                match step:
                    case "create":
                        name, number = f"t{number}", number + 1
                        await rig.create(name)
                        if leads:
                            waiting.append((name, rig.log.end_offset))
                        else:
                            assert rig.answers[name] is errors.NotControllerError
                    case "look":
                        name, number = f"look{number}", number + 1
                        await rig.look(name)
                        assert (name in rig.answers) == (not leads or not waiting)
                    case "commit" | "commit one" if waiting:
                        rig.log.commit(waiting[0][1] if step == "commit one" else waiting[-1][1])
                        await rig.settle()
                        succeeded += [name for name, end in waiting if end <= rig.log.committed_end]
                        waiting = [(name, end) for name, end in waiting if end > rig.log.committed_end]
                    case "drop" | "lose" if leads:
                        rig.log.drop() if step == "drop" else rig.log.lose()
                        await rig.settle()
                        failure = errors.KafkaStorageError if step == "drop" else errors.NotControllerError
                        assert all(rig.answers[name] is failure for name, _ in waiting)
                        waiting, leads = [], step == "drop"
                    case "lead" if not leads:
                        rig.log.lead(rig.log.epoch + 1, rig.state.committed)
                        await rig.settle()
                        leads = True
                    case _:
                        continue
                assert list(rig.state.committed.topics) == succeeded
                assert set(rig.state.image.topics) == {*succeeded, *(name for name, _ in waiting)}
                assert all(isinstance(rig.answers[name], list) for name in succeeded)
                assert not any(name in rig.answers for name, _ in waiting)
            assert [max(topics, key=succeeded.index) for topics in rig.published] == succeeded

    trio.run(play)


# Control records between changes, and terms


async def test_records_get_their_offsets_from_the_log() -> None:
    """The quorum has appended control records after the newest image."""
    async with running() as rig:
        rig.log.end_offset += 2
        base = rig.log.end_offset
        seen: list[int] = []

        def compute(image: MetadataImage) -> Outcome[None]:
            seen.append(image.offset)
            return Outcome([TopicRecord(name="a", topic_id=uuid.uuid4())], None)

        rig._nursery.start_soon(rig._submit, "a", compute)
        await rig.settle()
        rig.log.commit()
        await rig.settle()
        assert seen == [base - 1] and rig.state.committed.offset == base


async def test_operation_is_computed_again_when_a_control_record_takes_its_offset() -> None:
    async with running() as rig:
        base = rig.log.end_offset
        seen: list[int] = []

        def compute(image: MetadataImage) -> Steps[int]:
            seen.append(image.offset + 1)
            yield 1
            if len(seen) == 1:
                rig.log.end_offset += 1
            return Outcome([TopicRecord(name="a", topic_id=uuid.uuid4())], image.offset + 1)

        rig._nursery.start_soon(rig._submit, "a", compute)
        await rig.settle()
        rig.log.commit()
        await rig.settle()
        assert seen == [base, base + 1] and rig.answers == {"a": base + 1}
        assert rig.state.committed.offset == base + 1 and rig.published == [{"a"}]


class Terms:
    """A queue that does not lead at first."""

    def __init__(self, nursery: trio.Nursery, *, fails: bool = False, follower: MetadataFollower | None = None) -> None:
        self.rig = Rig(nursery)
        self.events: list[str] = []

        def activate(image: MetadataImage) -> Outcome[None]:
            self.events.append("activate")
            if fails:
                raise errors.UnsupportedVersionError("cannot")
            return Outcome([TopicRecord(name=f"first{self.rig.log.epoch}", topic_id=uuid.uuid4())], None)

        self.rig.queue = EventQueue(
            MemoryWorld(),
            self.rig.state,
            self._same_log,
            self.rig._publish,
            follower=follower,
            leads=False,
            activate=activate,
            resign=lambda epoch: self.events.append(f"resign {epoch}"),
            term_began=lambda: self.events.append("began"),
            term_ended=lambda: self.events.append("ended"),
        )

    def _same_log(self, listener: MetadataLogListener) -> ScriptedLog:
        self.rig.log.listener = listener
        return self.rig.log


async def test_term_begins_with_the_activation_before_any_other_operation() -> None:
    async with trio.open_nursery() as nursery:
        terms = Terms(nursery)
        rig = terms.rig
        nursery.start_soon(rig.queue.run)
        await rig.create("early")
        assert rig.answers == {"early": errors.NotControllerError}
        rig.log.lead(EPOCH + 1, rig.state.committed)
        await rig.settle()
        nursery.start_soon(rig._submit, "a", lambda image: Outcome([], sorted(image.topics)))
        await rig.settle()
        rig.log.commit()
        await rig.settle()
        assert rig.answers["a"] == ["first4"] and terms.events == ["began", "activate"]
        rig.log.lose()
        await rig.settle()
        rig.log.lead(EPOCH + 2, rig.state.committed)
        await rig.settle()
        assert terms.events == ["began", "activate", "ended", "began", "activate"]
        rig.log.lose()
        rig.queue.stop()


class SlowFollower:
    """Prepares a change once the test allows it."""

    def __init__(self) -> None:
        self.allowed = trio.Event()

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        await self.allowed.wait()

    async def settle(self) -> None:
        pass


async def test_operation_that_waited_for_its_term_comes_after_the_activation() -> None:
    """A broker's registration before the first records of a cluster would have the oldest format."""
    async with trio.open_nursery() as nursery:
        follower = SlowFollower()
        terms = Terms(nursery, follower=follower)
        rig = terms.rig
        nursery.start_soon(rig.queue.run)
        rig.log.lead(EPOCH + 1, rig.state.committed)
        await rig.settle()
        rig.log.commit()
        rig.log.lose()
        rig.log.lead(EPOCH + 2, rig.state.image)
        await rig.look("a")
        assert not rig.answers
        follower.allowed.set()
        await rig.settle()
        rig.log.commit()
        await rig.settle()
        assert rig.answers == {"a": ["first4", "first5"]}
        rig.log.lose()
        rig.queue.stop()


async def test_term_ends_after_the_last_committed_change_is_published() -> None:
    async with trio.open_nursery() as nursery:
        terms = Terms(nursery)
        rig = terms.rig
        nursery.start_soon(rig.queue.run)
        rig.log.lead(EPOCH + 1, rig.state.committed)
        await rig.settle()
        await rig.create("a", "b")
        rig.log.commit(rig.log.appends[1][0])
        rig.log.lose()
        assert "ended" not in terms.events
        await rig.settle()
        assert terms.events[-1] == "ended" and rig.answers == {"a": ["first4"], "b": errors.NotControllerError}
        assert rig.published[-1] == {"first4", "a"}
        rig.queue.stop()


async def test_leadership_that_is_lost_before_the_term_began_ends_it() -> None:
    async with trio.open_nursery() as nursery:
        terms = Terms(nursery)
        rig = terms.rig
        nursery.start_soon(rig.queue.run)
        rig.log.lead(EPOCH + 1, rig.state.committed)
        rig.log.lose()
        await rig.settle()
        assert terms.events == ["ended"]
        rig.queue.stop()


async def test_controller_whose_activation_fails_resigns() -> None:
    async with trio.open_nursery() as nursery:
        terms = Terms(nursery, fails=True)
        rig = terms.rig
        nursery.start_soon(rig.queue.run)
        rig.log.lead(EPOCH + 1, rig.state.committed)
        await rig.settle()
        await rig.create("a")
        assert rig.answers == {"a": errors.NotControllerError}
        assert terms.events[:3] == ["began", "activate", f"resign {EPOCH + 1}"]
        rig.log.lose()
        rig.queue.stop()
