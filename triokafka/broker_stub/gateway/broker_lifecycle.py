"""The lifecycle of a broker in its cluster: registration, heartbeats, controlled shutdown.

`LifecycleState` and `Lifecycle` are pure: a method takes the controller's answer and returns the time until the next
request. `BrokerLifecycle` sends the requests.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final
from uuid import UUID

import trio

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway, NodeStopsError
from triokafka.broker_stub.metadata.features import SUPPORTED, assigns_directories
from triokafka.broker_stub.metadata.image import EndpointImage, MetadataImage
from triokafka.broker_stub.metadata.lifecycle_values import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from triokafka.world import World

logger = logging.getLogger(__name__)

_EAGER_SECONDS: Final = 0.010
"""Interval between heartbeats while the broker starts, so that it learns soon that it is unfenced."""
_LEAVING_SECONDS: Final = 0.050
"""Interval between heartbeats that ask for a controlled shutdown."""
_LONGEST_SHUTDOWN: Final = 300.0
_FIRST_BACKOFF: Final = 0.100
_FIRST_RESIGN_PAUSE: Final = 1.0


class LifecycleState(enum.Enum):
    """States of a broker's lifecycle."""

    NOT_RUNNING = "not running"
    STARTING = "starting"
    RECOVERY = "recovery"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "pending controlled shutdown"
    SHUTTING_DOWN = "shutting down"


STATE_NUMBERS: Final = {
    LifecycleState.NOT_RUNNING: 0,
    LifecycleState.STARTING: 1,
    LifecycleState.RECOVERY: 2,
    LifecycleState.RUNNING: 3,
    LifecycleState.PENDING_CONTROLLED_SHUTDOWN: 6,
    LifecycleState.SHUTTING_DOWN: 7,
}
"""Kafka's numbers of the states, as metric."""


class Lifecycle:
    """The state of a broker's registration. Times are seconds; methods return the time until the next request.

    Args:
        heartbeat_interval: ``broker.heartbeat.interval.ms``, in seconds.
        max_backoff: the longest wait after failures: the session timeout. A broker without a registration waits for
            one heartbeat interval at most.
    """

    def __init__(self, *, heartbeat_interval: float, max_backoff: float) -> None:
        self.state = LifecycleState.NOT_RUNNING
        self.broker_epoch = -1
        self._interval = heartbeat_interval
        self._max_backoff = max_backoff
        self._failures = 0
        self.resigns = False
        """Whether the next heartbeat asks to be fenced."""

    @property
    def registered(self) -> bool:
        """Whether this process has a registration."""
        return self.broker_epoch >= 0

    @property
    def wants_shut_down(self) -> bool:
        """Whether the next heartbeat asks for a controlled shutdown."""
        return self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN

    def start(self) -> None:
        """Enter the STARTING state."""
        self.state = LifecycleState.STARTING

    def registration_answered(self, broker_epoch: int) -> float:
        """Store the broker epoch of the registration; the first heartbeat follows without delay."""
        self._failures = 0
        self.broker_epoch = broker_epoch
        return 0.0

    def heartbeat_answered(self, reply: HeartbeatReply) -> float:
        """Process the response to a heartbeat."""
        self._failures = 0
        match self.state:
            case LifecycleState.STARTING:
                if reply.is_caught_up:
                    self.state = LifecycleState.RECOVERY if reply.is_fenced else LifecycleState.RUNNING
                return _EAGER_SECONDS if reply.is_fenced else self._interval
            case LifecycleState.RECOVERY:
                if not reply.is_fenced:
                    self.state = LifecycleState.RUNNING
                return _EAGER_SECONDS if reply.is_fenced else self._interval
            case LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
                if reply.should_shut_down:
                    self.state = LifecycleState.SHUTTING_DOWN
                    return 0.0
                return _LEAVING_SECONDS
            case LifecycleState.RUNNING if self.resigns:
                self.resigns = False
                return _EAGER_SECONDS
            case _:
                return self._interval

    def failed(self, error: errors.KafkaError) -> float:
        """Back off after a failed request, longer each time.

        A broker whose registration was lost registers again, unless it leaves.
        """
        if self.wants_shut_down:
            if isinstance(error, (errors.BrokerIdNotRegisteredError, errors.StaleBrokerEpochError)):
                self.state = LifecycleState.SHUTTING_DOWN  # another process has taken its place
        elif isinstance(error, errors.BrokerIdNotRegisteredError):
            self.broker_epoch = -1
        self._failures += 1
        # The process before this one may have a session yet: this one waits for its end, not for long after it.
        longest = self._max_backoff if self.registered else self._interval
        return Backoff(_FIRST_BACKOFF, longest).without_jitter(self._failures)

    def leave(self) -> None:
        """Request a controlled shutdown; a broker that never ran stops without one."""
        running = self.state in (LifecycleState.RECOVERY, LifecycleState.RUNNING) and self.registered
        self.state = LifecycleState.PENDING_CONTROLLED_SHUTDOWN if running else LifecycleState.SHUTTING_DOWN


class BrokerLifecycle:
    """Registers a broker and sends its heartbeats.

    Use: `start`, then `run` in a nursery, `leave` at the end.

    Args:
        metadata_offset: returns the offset up to which this broker has applied the metadata.
        registered: receives every broker epoch that the controller assigns.
        is_stuck: returns whether this broker cannot follow the metadata. Meanwhile it asks to be fenced: otherwise it
            would get leaderships and new partitions that it does not know of, and delay the shutdown of others.
        offline_directories: returns the ids of the data directories that have failed since the registration (KIP-858).
        cordoned_directories: returns the ids of those that get no new replicas (KIP-1066), None if the cluster's
            metadata have no place for them.
    """

    def __init__(
        self,
        world: World,
        gateway: ControllerGateway,
        *,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        metadata_offset: Callable[[], int],
        registered: Callable[[int], None],
        is_stuck: Callable[[], bool] = lambda: False,
        offline_directories: Callable[[], tuple[UUID, ...]] = tuple,
        cordoned_directories: Callable[[], tuple[UUID, ...] | None] = lambda: None,
    ) -> None:
        self._world = world
        self._gateway = gateway
        self._metadata_offset = metadata_offset
        self._registered = registered
        self._is_stuck = is_stuck
        self._offline_directories = offline_directories
        self._cordoned_directories = cordoned_directories
        self._core = Lifecycle(heartbeat_interval=heartbeat_interval_ms / 1000, max_backoff=session_timeout_ms / 1000)
        self._registration: BrokerRegistration | None = None
        self._patience = session_timeout_ms / 2000
        self._session_seconds = session_timeout_ms / 1000
        self._may_resign_at = -inf
        self._resignations = 0
        self._wait = 0.0
        self._report_due = trio.Event()
        self._lacks_directories = False
        self._one_at_a_time = trio.Lock()

    @property
    def state(self) -> LifecycleState:
        """The state of the broker's lifecycle."""
        return self._core.state

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's registration; -1 while it has none."""
        return self._core.broker_epoch

    async def start(self, registration: BrokerRegistration, *, timeout_ms: int) -> None:
        """Register, and wait until the controller unfences the broker.

        Retries after errors, for at most ``timeout_ms`` (``initial.broker.registration.timeout.ms``).

        Raises:
            KafkaError: the error of the last attempt.
        """
        self._registration = registration
        self._core.start()
        give_up_at = self._world.now() + timeout_ms / 1000
        while True:
            failure = await self._communicate()
            if self._core.state is LifecycleState.RUNNING:
                return
            if self._wait and self._world.now() + self._wait >= give_up_at:
                raise failure or errors.KafkaTimeoutError(
                    f"the controller did not unfence the broker within {timeout_ms} ms"
                )
            await trio.sleep(self._wait)

    async def run(self) -> None:
        """Send heartbeats until cancelled. A failure is logged, and the next heartbeat follows after a back-off."""
        while True:
            with trio.move_on_after(self._wait):
                await self._report_due.wait()
            self._report_due = trio.Event()
            if self._core.state is LifecycleState.SHUTTING_DOWN:
                await trio.sleep_forever()
            failure = await self._communicate()
            if failure is not None:
                logger.warning("Broker: the heartbeat to the controller failed and is retried: %s", failure)

    def report_soon(self) -> None:
        """Send the next heartbeat of `run` now: another broker waits until this one is known to have some metadata."""
        if self._core.state is LifecycleState.RUNNING:
            self._report_due.set()

    def metadata_changed(self, image: MetadataImage) -> None:
        """Register again once the cluster's metadata have a place for the directories of brokers (KIP-858).

        After an upgrade of ``metadata.version`` the registration lacks them, and the controller could not tell which
        replicas a failed directory has.
        """
        registration = self._registration
        if registration is None or not registration.directories or not assigns_directories(image):
            return
        known = image.brokers.get(registration.broker_id)
        if known is not None and known.incarnation_id == registration.incarnation_id and not known.directories:
            self._lacks_directories = True
            self._report_due.set()

    def resign(self) -> bool:
        """Give up the leaderships of this broker: have the controller fence it, and unfence it with the next heartbeat.

        Other in-sync replicas lead then, and this broker follows. It comes back into the in-sync sets of partitions
        without new records, so the first record of each needs it to resign again. Returns False, and does nothing,
        while the broker starts or stops, and shortly after the last time: for a second at first, twice as long each
        time, at most a session timeout.
        """
        now = self._world.now()
        if self._core.state is not LifecycleState.RUNNING or now < self._may_resign_at:
            return False
        is_calm = now >= self._may_resign_at + self._session_seconds
        self._resignations = 1 if is_calm else self._resignations + 1
        pause = Backoff(_FIRST_RESIGN_PAUSE, self._session_seconds).without_jitter(self._resignations)
        self._may_resign_at = now + pause
        self._core.resigns = True
        self._report_due.set()
        return True

    async def leave(self) -> None:
        """Do a controlled shutdown: leaderships move, then the controller fences the broker. Returns once it is fenced.

        Retries after errors, until no controller has answered for half a session timeout, which an election takes at
        most. The controller waits for the other brokers to apply the new leaders; this method waits for that for at
        most five minutes, as Apache Kafka does.

        Raises:
            KafkaError: the error of the last attempt.
        """
        self._core.leave()
        world, began = self._world, self._world.now()
        failure: errors.KafkaError = errors.KafkaTimeoutError("the other brokers did not apply the new leaders in time")
        with trio.CancelScope(deadline=world.deadline(began + self._patience)) as patience:
            while self._core.wants_shut_down:
                error = await self._communicate()
                if isinstance(error, NodeStopsError):
                    raise error
                elif error is not None:
                    failure = error
                else:
                    give_up_at = min(world.now() + self._patience, began + _LONGEST_SHUTDOWN)
                    patience.deadline = world.deadline(give_up_at)
                if self._core.wants_shut_down:
                    await trio.sleep(self._wait)
        if patience.cancelled_caught:
            raise failure

    async def _communicate(self) -> errors.KafkaError | None:
        """Send one request, the registration or a heartbeat; return its error."""
        registration, core = self._registration, self._core
        if registration is None:
            raise errors.IllegalStateError("the broker was not started")
        async with self._one_at_a_time:
            if core.state is LifecycleState.SHUTTING_DOWN:
                return None  # another heartbeat would unfence the broker again
            try:
                if not core.registered or (self._lacks_directories and not core.wants_shut_down):
                    epoch = await self._gateway.register_broker(registration)
                    self._lacks_directories = False
                    self._registered(epoch)
                    self._wait = core.registration_answered(epoch)
                else:
                    beat = BrokerHeartbeat(
                        registration.broker_id,
                        core.broker_epoch,
                        self._metadata_offset(),
                        want_fence=core.resigns or self._is_stuck(),
                        want_shut_down=core.wants_shut_down,
                        offline_directories=self._offline_directories(),
                        cordoned_directories=self._cordoned_directories(),
                    )
                    self._wait = core.heartbeat_answered(await self._gateway.broker_heartbeat(beat))
            except errors.KafkaError as error:
                self._lacks_directories = self._lacks_directories and error.retriable
                self._wait = core.failed(error)
                return error
        return None


def registration_of(
    config: BrokerConfig,
    *,
    incarnation_id: UUID,
    cluster_id: str,
    endpoints: Iterable[EndpointImage],
    directory_ids: Mapping[str, UUID],
    previous_broker_epoch: int = -1,
) -> BrokerRegistration:
    """Return the registration of this process.

    Its directories are those in use: the controller elects no replica in another one. A configured directory without
    an id is offline. ``previous_broker_epoch`` is that of the last stop if it was clean, otherwise -1.
    """
    return BrokerRegistration(
        broker_id=config.node_id,
        incarnation_id=incarnation_id,
        cluster_id=cluster_id,
        endpoints=tuple(endpoints),
        features=SUPPORTED,
        rack=config.broker_rack,
        directories=tuple(directory_ids[path] for path in config.data_directories if path in directory_ids),
        previous_broker_epoch=previous_broker_epoch,
    )
