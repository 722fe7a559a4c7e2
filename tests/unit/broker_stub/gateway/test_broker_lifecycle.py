"""The life of a broker in its cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from tests.unit.broker_stub.clusters import CONFIG, MemoryWorld, lifecycle, registration, running
from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.gateway.broker_lifecycle import BrokerLifecycle, Lifecycle, LifecycleState
from triokafka.broker_stub.metadata.features import METADATA_VERSION
from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage
from triokafka.broker_stub.metadata.lifecycle_values import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from triokafka.world.system import RealWorld


def state_of(life: Lifecycle) -> LifecycleState:
    """Return the present state; a call, so that the type checker does not narrow it."""
    return life.state


FENCED = HeartbeatReply(is_caught_up=False, is_fenced=True)
CAUGHT_UP = HeartbeatReply(is_caught_up=True, is_fenced=True)
SERVING = HeartbeatReply(is_caught_up=True, is_fenced=False)
MAY_STOP = HeartbeatReply(is_caught_up=True, is_fenced=True, should_shut_down=True)


def core() -> Lifecycle:
    return Lifecycle(heartbeat_interval=2.0, max_backoff=9.0)


class TestLifecycle:
    def test_broker_catches_up_and_is_admitted(self) -> None:
        life = core()
        life.start()
        assert not life.registered
        assert life.registration_answered(17) == 0.0
        assert life.heartbeat_answered(FENCED) == 0.010
        assert state_of(life) is LifecycleState.STARTING
        assert life.heartbeat_answered(CAUGHT_UP) == 0.010
        assert state_of(life) is LifecycleState.RECOVERY
        assert life.heartbeat_answered(SERVING) == 2.0
        assert state_of(life) is LifecycleState.RUNNING
        assert life.heartbeat_answered(SERVING) == 2.0

    def test_failures_wait_longer_each_time_up_to_the_interval_and_once_registered_to_the_session(self) -> None:
        life = core()
        life.start()
        waits = [life.failed(errors.NotControllerError("x")) for _ in range(9)]
        assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0]
        life.registration_answered(1)
        waits = [life.failed(errors.NotControllerError("x")) for _ in range(9)]
        assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 9.0, 9.0]
        assert state_of(life) is LifecycleState.STARTING

    def test_broker_that_is_not_known_any_more_registers_again(self) -> None:
        life = core()
        life.start()
        life.registration_answered(5)
        life.failed(errors.StaleBrokerEpochError("x"))
        assert life.registered
        life.failed(errors.BrokerIdNotRegisteredError("x"))
        assert not life.registered

    def test_stop_waits_until_the_controller_lets_the_broker_go(self) -> None:
        life = core()
        life.start()
        life.registration_answered(5)
        life.heartbeat_answered(SERVING)
        life.leave()
        assert life.wants_shut_down
        assert life.heartbeat_answered(SERVING) == 0.050
        assert life.heartbeat_answered(SERVING) == 0.050
        assert life.heartbeat_answered(MAY_STOP) == 0.0
        assert state_of(life) is LifecycleState.SHUTTING_DOWN

    @pytest.mark.parametrize("error", [errors.StaleBrokerEpochError("x"), errors.BrokerIdNotRegisteredError("x")])
    def test_broker_that_leaves_stops_when_another_process_took_its_place(self, error: errors.KafkaError) -> None:
        life = core()
        life.start()
        life.registration_answered(5)
        life.heartbeat_answered(SERVING)
        life.leave()
        life.failed(error)
        assert state_of(life) is LifecycleState.SHUTTING_DOWN and life.registered

    def test_broker_that_resigns_asks_to_be_unfenced_soon(self) -> None:
        life = core()
        life.start()
        life.registration_answered(5)
        life.heartbeat_answered(SERVING)
        life.resigns = True
        assert life.heartbeat_answered(CAUGHT_UP) == 0.010
        assert not life.resigns
        assert life.heartbeat_answered(SERVING) == 2.0

    def test_broker_that_never_ran_may_stop_at_once(self) -> None:
        life = core()
        life.leave()
        assert state_of(life) is LifecycleState.SHUTTING_DOWN and not life.wants_shut_down


class Channel:
    """A controller with scripted answers."""

    def __init__(self, *answers: int | HeartbeatReply | errors.KafkaError) -> None:
        self.answers = list(answers)
        self.beats: list[BrokerHeartbeat] = []
        self.registrations = 0

    def _next(self) -> int | HeartbeatReply:
        answer = self.answers.pop(0)
        if isinstance(answer, errors.KafkaError):
            raise answer
        return answer

    async def register_broker(self, registration: BrokerRegistration) -> int:
        self.registrations += 1
        answer = self._next()
        assert isinstance(answer, int)
        return answer

    async def broker_heartbeat(self, beat: BrokerHeartbeat) -> HeartbeatReply:
        self.beats.append(beat)
        answer = self._next()
        assert isinstance(answer, HeartbeatReply)
        return answer


def life_of(channel: Channel, is_stuck: Callable[[], bool] = lambda: False) -> tuple[BrokerLifecycle, list[int]]:
    epochs: list[int] = []
    life = BrokerLifecycle(
        RealWorld(),
        channel,  # type: ignore[arg-type]
        heartbeat_interval_ms=2_000,
        session_timeout_ms=9_000,
        metadata_offset=lambda: 40 + len(channel.beats),
        registered=epochs.append,
        is_stuck=is_stuck,
    )
    return life, epochs


def someone() -> BrokerRegistration:
    return BrokerRegistration(7, RealWorld().uuid(), "cluster", ())


class TestBrokerLifecycle:
    async def test_start_continues_until_the_broker_is_admitted(self, autojump_clock: MockClock) -> None:
        channel = Channel(errors.DuplicateBrokerRegistrationError("still there"), 17, FENCED, SERVING)
        life, epochs = life_of(channel)
        await life.start(someone(), timeout_ms=60_000)
        assert (life.broker_epoch, epochs, life.state) == (17, [17], LifecycleState.RUNNING)
        assert [(beat.broker_id, beat.broker_epoch, beat.metadata_offset) for beat in channel.beats] == [
            (7, 17, 40),
            (7, 17, 41),
        ]

    async def test_start_that_takes_too_long_raises_the_last_reason(self, autojump_clock: MockClock) -> None:
        """(initial.broker.registration.timeout.ms)"""
        channel = Channel(*[errors.DuplicateBrokerRegistrationError("still there")] * 100)
        life, _ = life_of(channel)
        with pytest.raises(errors.DuplicateBrokerRegistrationError, match="still there"):
            await life.start(someone(), timeout_ms=1_000)
        assert trio.current_time() < 1.1

    async def test_heartbeats_continue_and_failures_are_repeated(self, autojump_clock: MockClock) -> None:
        channel = Channel(17, SERVING, SERVING, errors.NotControllerError("x"), SERVING, *[SERVING] * 3)
        life, _ = life_of(channel)
        await life.start(someone(), timeout_ms=1_000)
        started = trio.current_time()
        with trio.move_on_after(5.0):
            await life.run()
        assert trio.current_time() - started == pytest.approx(5.0)
        assert len(channel.beats) == 4  # at 0, 2, 4 (failed), 4.1

    async def test_broker_that_was_forgotten_registers_again(self, autojump_clock: MockClock) -> None:
        channel = Channel(17, SERVING, errors.BrokerIdNotRegisteredError("x"), 30, SERVING, SERVING)
        life, epochs = life_of(channel)
        await life.start(someone(), timeout_ms=1_000)
        with trio.move_on_after(3.0):
            await life.run()
        assert epochs == [17, 30] and channel.beats[-1].broker_epoch == 30

    async def test_broker_registers_again_once_the_metadata_have_a_place_for_its_directories(
        self, autojump_clock: MockClock
    ) -> None:
        channel = Channel(17, SERVING, errors.NotControllerError("x"), 17, SERVING, SERVING)
        life, epochs = life_of(channel)
        registration = someone()._replace(directories=(uuid.UUID(int=500),))
        await life.start(registration, timeout_ms=1_000)

        def image(level: int, directories: tuple[uuid.UUID, ...]) -> MetadataImage:
            known = BrokerImage(7, 17, registration.incarnation_id, (), {}, None, fenced=False, directories=directories)
            return MetadataImage(brokers={7: known}, features={METADATA_VERSION: level})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.run)
            life.metadata_changed(image(16, ()))
            await trio.sleep(0.5)
            assert channel.registrations == 1
            life.metadata_changed(image(17, ()))
            await trio.sleep(0.5)
            assert channel.registrations == 3 and epochs == [17, 17]  # the first attempt failed
            life.metadata_changed(image(17, registration.directories))
            await trio.sleep(2.0)
            assert channel.registrations == 3
            nursery.cancel_scope.cancel()

    async def test_leaving_asks_until_it_is_granted(self, autojump_clock: MockClock) -> None:
        channel = Channel(17, SERVING, SERVING, MAY_STOP)
        life, _ = life_of(channel)
        await life.start(someone(), timeout_ms=1_000)
        await life.leave()
        assert [beat.want_shut_down for beat in channel.beats] == [False, True, True]
        assert life.state is LifecycleState.SHUTTING_DOWN

    async def test_leaving_outlasts_an_election_of_the_controller(self, autojump_clock: MockClock) -> None:
        channel = Channel(17, SERVING, SERVING, *[errors.NotControllerError("x")] * 5, SERVING, MAY_STOP)
        life, _ = life_of(channel)
        await life.start(someone(), timeout_ms=1_000)
        await life.leave()
        assert life.state is LifecycleState.SHUTTING_DOWN

    async def test_leaving_ends_when_no_controller_answered_for_half_a_session(self, autojump_clock: MockClock) -> None:
        channel = Channel(17, SERVING, *[SERVING] * 100, *[errors.NotControllerError("x")] * 100)
        life, _ = life_of(channel)
        await life.start(someone(), timeout_ms=1_000)
        with pytest.raises(errors.NotControllerError):
            await life.leave()
        assert trio.current_time() == pytest.approx(99 * 0.050 + 4.5)

    async def test_leaving_ends_when_a_controller_never_lets_the_broker_go(self, autojump_clock: MockClock) -> None:
        channel = Channel(17, SERVING, *[SERVING] * 10_000)
        life, _ = life_of(channel)
        await life.start(someone(), timeout_ms=1_000)
        with pytest.raises(errors.KafkaTimeoutError, match="the other brokers did not apply the new leaders in time"):
            await life.leave()
        assert trio.current_time() == pytest.approx(300.0)

    async def test_heartbeat_is_sent_early_when_a_caller_waits_for_it(self, autojump_clock: MockClock) -> None:
        channel = Channel(17, SERVING, *[SERVING] * 10)
        life, _ = life_of(channel)
        await life.start(someone(), timeout_ms=1_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.run)
            await trio.sleep(0.5)
            assert len(channel.beats) == 1
            life.report_soon()
            await trio.sleep(0.1)
            assert len(channel.beats) == 2
            await trio.sleep(2.0)
            assert len(channel.beats) == 3
            nursery.cancel_scope.cancel()


class TestSessions:
    """The controller's side of a broker's session, with its timer."""

    CONFIG = BrokerConfig.for_tests(
        log_dirs=CONFIG.log_dirs, broker_session_timeout_ms=100, broker_heartbeat_interval_ms=10
    )

    async def test_broker_that_falls_silent_is_fenced_and_returns_with_its_next_heartbeat(self) -> None:
        world = MemoryWorld()
        with trio.fail_after(10):
            async with running(world, self.CONFIG, register=False) as controller:
                life = lifecycle(controller, world, self.CONFIG)
                await life.start(registration(controller, world, self.CONFIG), timeout_ms=1_000)
                while not controller.image.brokers[1].fenced:
                    await trio.sleep(0.005)
                with trio.move_on_after(5):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(life.run)
                        while controller.image.brokers[1].fenced:
                            await trio.sleep(0.005)
                        nursery.cancel_scope.cancel()
                assert not controller.image.brokers[1].fenced

    async def test_broker_resigns_at_once_and_then_ever_less_often(self, autojump_clock: MockClock) -> None:
        channel = Channel(17, SERVING, CAUGHT_UP, *[SERVING] * 199)
        life, _ = life_of(channel)
        assert not life.resign()
        await life.start(someone(), timeout_ms=60_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.run)
            await trio.sleep(0.5)
            assert life.resign()
            assert not life.resign()
            await trio.sleep(0.1)
            assert [beat.want_fence for beat in channel.beats] == [False, True, False]
            paused, session = [], 9
            for _ in range(6):
                began = trio.current_time()
                while not life.resign():
                    await trio.sleep(0.1)
                paused.append(round(trio.current_time() - began))
            assert paused == [1, 2, 4, 8, session, session]
            await trio.sleep(2 * session)
            assert life.resign()
            began = trio.current_time()
            while not life.resign():
                await trio.sleep(0.1)
            assert round(trio.current_time() - began) == 1
            nursery.cancel_scope.cancel()

    async def test_broker_that_cannot_follow_the_metadata_asks_to_be_fenced(self, autojump_clock: MockClock) -> None:
        channel = Channel(17, SERVING, *[CAUGHT_UP] * 3, *[SERVING] * 9)
        stuck = False
        life, _ = life_of(channel, is_stuck=lambda: stuck)
        await life.start(someone(), timeout_ms=60_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.run)
            stuck = True
            await trio.sleep(5)
            stuck = False
            await trio.sleep(2)
            assert [beat.want_fence for beat in channel.beats] == [False, True, True, False]
            nursery.cancel_scope.cancel()
