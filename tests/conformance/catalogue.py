"""The scenarios, their tools, and their execution."""

from __future__ import annotations

import hashlib
import inspect
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from tests.conformance.driver import ClientDriver, ConsumerDriver, Delivered, Message, NotOffered, Record, Refused, Spot

AREAS: Final = (
    "produce",
    "codecs",
    "consume",
    "offsets",
    "groups",
    "members",
    "consumer_protocol",
    "topics",
    "configs",
    "cleaning",
    "limits",
)
"""Modules of ``tests.conformance.scenarios``, in the order of the page."""

SETTINGS: Final = {
    "auto.create.topics.enable": "true",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.max.size": "3",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "4",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "300",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
}
"""The broker's configuration for the scenarios, where it can be set: rare events happen sooner."""

FIRST_TIMESTAMP: Final = int(time.time() * 1000) - 3_600_000
"""The timestamp of the first records: old, but within the default retention."""

_AT_ONCE: Final = 6
_LONGEST_FACTOR: Final = 4


@dataclass(frozen=True)
class Scenario:
    """A claim about a broker, and the steps that check it through any client."""

    area: str
    name: str
    claim: str
    steps: Callable[[Case], None]
    digest: str
    """Changes with the text of the steps, so that results of an older text are recognised."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a scenario: "passed", "failed" or "not offered", and the reason if it did not pass."""

    state: str
    text: str = ""
    trace: str = ""
    code: int | None = None
    """Kafka's code, if the scenario ended with an error that the client handed out, or waited in vain after one."""


_registered: dict[str, Scenario] = {}


def scenario(steps: Callable[[Case], None]) -> Callable[[Case], None]:
    """Add a function to the catalogue; the first line of its docstring is the claim."""
    area = steps.__module__.rpartition(".")[2]
    claim = (steps.__doc__ or "").partition("\n")[0].strip()
    name = f"{area}/{steps.__name__}"
    assert claim, f"{name} has no claim"
    assert name not in _registered, f"{name} is there twice"
    # Now, because the text that runs is the one at import time.
    digest = hashlib.sha256((claim + inspect.getsource(steps)).encode()).hexdigest()[:16]
    _registered[name] = Scenario(area, name, claim, steps, digest)
    return steps


def scenarios() -> list[Scenario]:
    """Return all scenarios, in the order of the page."""
    for area in AREAS:
        import_module(f"tests.conformance.scenarios.{area}")
    return sorted(_registered.values(), key=lambda one: AREAS.index(one.area))


class Case:
    """The tools of a scenario: a client, unused names, and ways to wait for other programs."""

    def __init__(self, client: ClientDriver, replication: int = 1, *, idempotent: bool = False) -> None:
        self.client = client
        self._replication = replication
        self._idempotent = idempotent
        self._id = uuid.uuid4().hex[:10]
        self._count = 0

    def name(self) -> str:
        """Return an unused name, for a topic or a group."""
        self._count += 1
        return f"conformance-{self._id}-{self._count}"

    def topic(self, partitions: int = 1, **configs: object) -> str:
        """Create a topic with these configs (``_`` for ``.``) and wait until it can be described."""
        name = self.name()
        texts = {key.replace("_", "."): str(value) for key, value in configs.items()}
        self.client.create_topic(name, partitions, self._replication, configs=texts)

        def described() -> bool:
            found = self.client.describe_topic(name).partitions
            return len(found) == partitions and all(partition.leader >= 0 for partition in found.values())

        self.until(described)
        return name

    def configure(self, topic: str, key: str, value: str) -> None:
        """Set a value of a topic, with whichever call the client has."""
        try:
            self.client.incremental_alter("topic", topic, {key: ("set", value)})
        except NotOffered:
            self.client.alter_configs("topic", topic, {key: value})

    def until(self, condition: Callable[[], bool]) -> None:
        """Repeat a check until it holds: there is no event for changes in another program."""
        deadline = time.monotonic() + self.client.patience
        problem: Refused | None = None
        while True:
            try:
                if condition():
                    return
            except Refused as refusal:
                problem = refusal
            if time.monotonic() >= deadline:
                text = f"it did not come to be within {self.client.patience} s ({problem})"
                raise AssertionError(text) from problem
            time.sleep(0.01)

    def send(self, topic: str, messages: Sequence[Message], **options: Any) -> list[Delivered]:
        """Produce; every record must be accepted."""
        if self._idempotent and "acks" not in options:
            options = {"enable_idempotence": True, **options}
        delivered = []
        for outcome in self.client.produce(topic, messages, **options):
            if isinstance(outcome, Refused):
                raise outcome
            delivered.append(outcome)
        return delivered

    def fill(self, topic: str, count: int, partition: int = 0, **options: Any) -> list[Delivered]:
        """Produce the values 0, 1, … to one partition, a millisecond apart."""
        return self.send(
            topic,
            [Message(b"%d" % i, partition=partition, timestamp=FIRST_TIMESTAMP + i) for i in range(count)],
            **options,
        )

    def reader(self, topic: str, offsets: Mapping[int, int | None] | None = None, **options: Any) -> ConsumerDriver:
        """Return a consumer without a group that reads partitions (by default only 0) from offsets (by default 0)."""
        consumer = self.client.consumer(None, **options)
        consumer.assign(topic, {0: 0} if offsets is None else offsets)
        return consumer

    def take(self, consumer: ConsumerDriver, count: int) -> list[Record]:
        """Poll until so many records have arrived; more than that is a failure."""
        found: list[Record] = []

        def enough() -> bool:
            found.extend(consumer.poll())
            return len(found) >= count

        self.until(enough)
        assert len(found) == count, f"{len(found)} records arrived instead of {count}"
        return found

    def read(self, topic: str, count: int, partitions: int = 1, **options: Any) -> list[Record]:
        """Return the first records of a topic, through a new reader."""
        consumer = self.reader(topic, dict.fromkeys(range(partitions), 0), **options)
        found = self.take(consumer, count)
        consumer.close()
        return found

    def until_refused(self, consumer: ConsumerDriver) -> Refused:
        """Poll until the client raises an error; a record is a failure."""
        deadline = time.monotonic() + self.client.patience
        while time.monotonic() < deadline:
            try:
                found = consumer.poll()
            except Refused as refusal:
                return refusal
            assert not found, f"records arrived instead of an error: {found[0]}"
        raise AssertionError("no error came")

    def refusal(self, call: Callable[[], object]) -> int | None:
        """Return the error code of a refused call; a call that succeeds is a failure."""
        try:
            answer = call()
        except Refused as refusal:
            return refusal.code
        raise AssertionError(f"it was not refused, but answered {answer!r}")

    def outcome_of(self, topic: str, message: Message, **options: Any) -> int | None:
        """Return the error code of a refused record."""
        (outcome,) = self.client.produce(topic, [message], **options)
        assert isinstance(outcome, Refused), f"the record was not refused, but delivered: {outcome}"
        return outcome.code

    def together(
        self, members: Sequence[ConsumerDriver], until: Callable[[list[set[Spot]], list[Record]], bool]
    ) -> list[Record]:
        """Poll several members of a group at the same time until the condition on assignments and records holds."""
        shares: list[set[Spot]] = [set() for _ in members]
        records: list[Record] = []
        problems: list[BaseException] = []
        done = threading.Event()

        def member(index: int) -> None:
            try:
                while not done.is_set():
                    found = members[index].poll()
                    shares[index] = members[index].assignment()
                    records.extend(found)
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=member, args=(index,), daemon=True) for index in range(len(members))]
        for thread in threads:
            thread.start()
        try:
            self.until(lambda: bool(problems) or until(list(shares), list(records)))
        except AssertionError as error:
            raise AssertionError(f"{error}; shares: {shares}, {len(records)} records") from error
        finally:
            done.set()
            for thread in threads:
                thread.join()
        if problems:
            raise problems[0]
        return records


def run(
    one: Scenario, case: Callable[[ClientDriver], Case], connect: Callable[[], ClientDriver], longest: float
) -> Outcome:
    """Run a scenario through a new client; return an outcome in any case, at the latest after ``longest`` seconds."""
    outcomes: list[Outcome] = []

    def work() -> None:
        try:
            client = connect()
            try:
                one.steps(case(client))
            finally:
                client.close()
        except NotOffered as missing:
            outcomes.append(Outcome("not offered", str(missing)))
        except BaseException as problem:
            text = f"{type(problem).__name__}: {problem}".strip().partition("\n")[0][:300]
            refusal = problem if isinstance(problem, Refused) else problem.__cause__
            code = refusal.code if isinstance(refusal, Refused) else None
            outcomes.append(Outcome("failed", text, traceback.format_exc(), code))
        else:
            outcomes.append(Outcome("passed"))

    thread = threading.Thread(target=work, daemon=True, name=one.name)
    thread.start()
    thread.join(longest)
    return outcomes[0] if outcomes else Outcome("failed", f"it did not end within {longest:.0f} s")


def run_all(
    chosen: Sequence[Scenario],
    connect: Callable[[], ClientDriver],
    patience: float,
    *,
    replication: int = 1,
    idempotent: bool = False,
) -> dict[str, Outcome]:
    """Run scenarios, several at a time, because most of them mainly wait; return outcomes by name.

    ``replication`` is the number of replicas of the scenarios' topics. With ``idempotent``, producers are idempotent
    unless a scenario sets acknowledgements.
    """

    def case(client: ClientDriver) -> Case:
        return Case(client, replication, idempotent=idempotent)

    pool = ThreadPoolExecutor(_AT_ONCE)
    longest = patience * _LONGEST_FACTOR
    futures = {one.name: pool.submit(run, one, case, connect, longest) for one in chosen}
    try:
        return {name: future.result() for name, future in futures.items()}
    finally:  # after the time limit of the test, too: begin no other scenario
        pool.shutdown(cancel_futures=True)
