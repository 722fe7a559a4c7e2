"""The state that a client builds from fetch sessions equals the results of full fetches.

The client follows the rules of KIP-227 and sees only responses; requests are lost before and after they are executed,
overtake each other, and other clients push sessions out of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from triokafka import errors
from triokafka.broker_stub.replica.read_result import ReadOutcome
from triokafka.network.fetch_sessions.fetch_context import Answered, FetchContext
from triokafka.network.fetch_sessions.fetch_session import PartitionKey, WantedPartition
from triokafka.network.fetch_sessions.fetch_session_cache import FINAL_EPOCH, INITIAL_EPOCH, FetchSessionCache
from triokafka.world.system import RealWorld

PARTITIONS = [("t", number) for number in range(5)]
NOT_LEADER = errors.NotLeaderForPartitionError.code


@dataclass
class Log:
    """A partition on the broker. Every record is one byte."""

    start: int = 0
    end: int = 0
    error_code: int = 0

    def read(self, offset: int, room: int) -> ReadOutcome:
        if self.error_code:
            return ReadOutcome(self.error_code)
        if not self.start <= offset <= self.end:
            return ReadOutcome(errors.OffsetOutOfRangeError.code, self.end, self.end, self.start)
        return ReadOutcome(0, self.end, self.end, self.start, b"r" * min(room, self.end - offset))


@dataclass
class ClientView:
    """The client's knowledge of a partition: error, high watermark, log start."""

    state: tuple[int, int, int] | None = None


@dataclass
class Broker:
    """Reads for contexts, with room for a few records in each response."""

    sessions: FetchSessionCache
    room: int
    logs: dict[PartitionKey, Log] = field(default_factory=lambda: {key: Log() for key in PARTITIONS})
    now: float = 0.0

    def begin(
        self, session_id: int, epoch: int, wanted: dict[PartitionKey, int], forgotten: list[PartitionKey]
    ) -> FetchContext:
        return self.sessions.context_for(
            session_id=session_id,
            epoch=epoch,
            wanted=[WantedPartition(*key, offset, 100) for key, offset in wanted.items()],
            forgotten=forgotten,
            privileged=False,
            by_topic_id=False,
            now=self.now,
        )

    def answer(self, context: FetchContext) -> Answered:
        room, outcomes = self.room, {}
        for wanted in context.partitions:
            outcomes[wanted.key] = outcome = self.logs[wanted.topic, wanted.partition].read(wanted.fetch_offset, room)
            room -= len(outcome.records)
        return context.respond(outcomes, lambda: self.now)


class Client:
    """Follows KIP-227: sends the changes since the last request with a response, and starts over after an error."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.session_id, self.epoch = 0, INITIAL_EPOCH
        self.wanted: dict[PartitionKey, int] = {}
        self.session_offsets: dict[PartitionKey, int] = {}  # the partitions in the broker's session
        self.seen: dict[PartitionKey, ClientView] = {}
        self.rounds_behind: dict[PartitionKey, int] = {}

    def request(self) -> tuple[FetchContext, bool]:
        full = self.session_id == 0 or self.epoch == INITIAL_EPOCH
        if full:
            changed, forgotten = dict(self.wanted), []
        else:
            changed = {key: offset for key, offset in self.wanted.items() if self.session_offsets.get(key) != offset}
            forgotten = [key for key in self.session_offsets if key not in self.wanted]
        self.seen = {key: seen for key, seen in self.seen.items() if key in self.wanted}
        context = self.broker.begin(self.session_id, self.epoch, changed, forgotten)
        self.session_offsets = dict(self.wanted)
        return context, full

    def lost(self) -> None:
        """No response arrived: the broker may have used the epoch."""
        self.epoch = INITIAL_EPOCH

    def settle(self, answered: Answered, *, full: bool) -> None:
        """Handle a response, and compare."""
        self.session_offsets = dict(self.wanted)
        self.take(answered, full=full)
        if not answered.error_code:
            self.check()

    def take(self, answered: Answered, *, full: bool) -> None:
        if answered.error_code == errors.FetchSessionIdNotFoundError.code:
            self.session_id, self.epoch = 0, INITIAL_EPOCH
            return
        if answered.error_code:
            self.epoch = INITIAL_EPOCH
            return
        named = set(answered.outcomes)
        assert named == set(self.wanted) if full else named <= set(self.wanted)
        for key, outcome in answered.outcomes.items():
            seen = self.seen.setdefault(key, ClientView())
            assert full or len(outcome.records) or outcome.error_code or seen.state != state(outcome), (
                "an unchanged partition was returned"
            )
            seen.state = state(outcome)
            self.wanted[key] += len(outcome.records)
        self.check_fairness(answered, full=full)
        if answered.session_id == 0:
            self.session_id, self.epoch = 0, INITIAL_EPOCH
        else:
            self.epoch = 1 if full else self.epoch + 1
            self.session_id = answered.session_id

    def check_fairness(self, answered: Answered, *, full: bool) -> None:
        """Within a session, a partition with records waits no longer than one response for each of the others."""
        for key in PARTITIONS:
            served = key in answered.outcomes and len(answered.outcomes[key].records)
            log = self.broker.logs[key]
            behind = key in self.wanted and not log.error_code and log.start <= self.wanted[key] < log.end
            self.rounds_behind[key] = 0 if full or served or not behind else self.rounds_behind.get(key, 0) + 1
            assert self.rounds_behind[key] < len(PARTITIONS)

    def check(self) -> None:
        """The client's state equals the result of a full fetch."""
        for key, offset in self.session_offsets.items():
            if key in self.wanted:
                assert self.seen[key].state == state(self.broker.logs[key].read(offset, 0)), key


def state(outcome: ReadOutcome) -> tuple[int, int, int]:
    return (outcome.error_code, outcome.high_watermark, outcome.log_start_offset)


def change(broker: Broker, client: Client, rng: Random) -> None:
    """Change the broker's logs, or the client's partitions."""
    key = rng.choice(PARTITIONS)
    log = broker.logs[key]
    match rng.randrange(8):
        case 0 | 1 | 2:
            log.end += rng.randint(1, 9)
        case 3:
            log.start = rng.randint(log.start, log.end)
        case 4:
            log.error_code = 0 if log.error_code else NOT_LEADER
        case 5:
            client.wanted.pop(key, None)
            client.rounds_behind[key] = 0
        case 6:
            client.wanted.setdefault(key, log.start)
        case 7 if key in client.wanted:
            client.wanted[key] = rng.randint(log.start, log.end)


def fetch(broker: Broker, client: Client, rng: Random) -> None:
    """Send one request, with a random outcome."""
    if not client.wanted and client.session_id == 0:
        return
    fate = rng.random()
    if fate < 0.05:  # the request is lost
        client.session_offsets = dict(client.wanted)
        client.lost()
        return
    context, full = client.request()
    if fate < 0.1:  # the response is lost
        broker.answer(context)
        client.lost()
    elif fate < 0.15 and not full and context.partitions:  # requests are repeated, and overtake each other
        repeated = broker.answer(broker.begin(client.session_id, client.epoch, {("t", 0): 0}, [("t", 1)]))
        assert (repeated.error_code, repeated.outcomes) == (errors.InvalidFetchSessionEpochError.code, {})
        client.epoch += 1
        second, _ = client.request()
        if second.partitions:
            overtaken = broker.answer(context)
            assert (overtaken.error_code, overtaken.outcomes) == (errors.InvalidFetchSessionEpochError.code, {})
        client.settle(broker.answer(second), full=False)
    elif fate < 0.2:  # over its quota: nothing is read, and no change may be missed because of that
        throttled = context.throttle()
        if throttled.error_code or throttled.session_id == 0:
            client.session_id, client.epoch = 0, INITIAL_EPOCH
        else:
            client.epoch += 1
    else:
        client.settle(broker.answer(context), full=full)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 3), st.integers(1, 12), st.integers(10, 80))
def test_fetch_session_adds_up_to_the_same_state_as_full_fetches(seed: int, slots: int, room: int, steps: int) -> None:
    """This holds after every response; there are never more sessions than slots."""
    rng = Random(seed)
    sessions = FetchSessionCache(slots, RealWorld())  # type: ignore[var-annotated]
    broker = Broker(sessions, room)
    client = Client(broker)
    for _ in range(steps):
        broker.now += rng.choice([0.1, 1, 130])
        for _ in range(rng.randrange(3)):
            change(broker, client, rng)
        if rng.random() < 0.1:  # another client, with more or fewer partitions
            others = rng.sample(PARTITIONS, rng.randint(1, len(PARTITIONS)))
            broker.answer(broker.begin(0, INITIAL_EPOCH, dict.fromkeys(others, 0), []))
        fetch(broker, client, rng)
        assert len(sessions) <= slots
        assert sessions.cached_partitions == sum(len(session.partitions) for session in sessions._sessions.values())
        assert sessions.cached_partitions <= slots * len(PARTITIONS)
    if client.session_id:
        broker.begin(client.session_id, FINAL_EPOCH, {}, [])
        unknown = broker.answer(broker.begin(client.session_id, 1, {}, []))
        assert unknown.error_code == errors.FetchSessionIdNotFoundError.code
