"""A group under change: its members, the seeded schedule of changes, and the conditions after each step.

After every change the group must be stable again within the rebalance timeout; after a death the session timeout is
added, because it is unnoticed before. Stable means: the coordinator's members are those that are alive, each reports
the partitions that the coordinator assigned, and every partition has one owner. Meanwhile records are produced. At the
end each record was returned to some member, and in the last generation only once; the group has committed all of them,
and no commit in its log moved an offset back.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

import trio

from tests.churning.member import Terms
from tests.churning.observer import Observer, Seen
from tests.churning.process import JAVA, MemberProcess, command
from triokafka import AdminClient, NewTopic, Producer

_LOOK_AGAIN: Final = 0.05
_START: Final = 60.0
"""Seconds that a process may take until it joins: this depends on the machine, not on the group."""
_CATCH_UP: Final = 60.0
_PACE: Final = 0.02


ALL: Final = ("java", "confluent", "kafka_python", "aiokafka", "ours")


def both(*clients: str) -> list[tuple[str, bool]]:
    """Return a dynamic and a static member of each."""
    return [(client, static) for client in clients for static in (False, True)]


@dataclass(frozen=True)
class Plan:
    """The plan of a run: ``slots`` are the places for members, each a client and whether it is a static member."""

    slots: Sequence[tuple[str, bool]]
    partitions: int
    strategy: str
    seed: int
    at_least: int
    protocol: Literal["classic", "consumer"] = "classic"
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 500
    rebalance_timeout_ms: int = 20_000


class Churn:
    """One run of a `Plan` against a broker."""

    def __init__(self, bootstrap: str, name: str, plan: Plan, java_class_path: str | None = None) -> None:
        self._plan = plan
        self._java = java_class_path
        self._random = random.Random(plan.seed)
        self._terms = Terms(
            bootstrap=bootstrap,
            topic=name,
            group=name,
            client_id="",
            instance=None,
            protocol=plan.protocol,
            strategy=plan.strategy,
            session_timeout_ms=plan.session_timeout_ms,
            heartbeat_interval_ms=plan.heartbeat_interval_ms,
            max_poll_interval_ms=plan.rebalance_timeout_ms,
        )
        self._observer = Observer(bootstrap, name, plan.partitions, name)
        self._members: dict[int, MemberProcess] = {}
        self._all: list[MemberProcess] = []
        self._produced: Counter[int] = Counter()
        self._news = trio.Event()
        self._started = 0
        self._last: Seen | None = None
        self._expelled: set[str] = set()
        self.history: list[tuple[str, float]] = []
        """The changes, and the seconds after which the group was stable again."""

    async def run(self, kinds: Sequence[str] = (), *, seconds: float = 0) -> None:
        """Start all members, make these ``kinds`` of changes, then random ones until the time is over; check
        everything.

        Raises:
            AssertionError: a condition does not hold; the message has the seed and the changes so far.
        """
        try:
            async with trio.open_nursery() as nursery:
                await self._create_topic()
                enough = trio.Event()
                await nursery.start(self._produce, enough)
                await self._all_join(nursery)
                for kind in kinds:
                    await self._change(nursery, kind)
                end = trio.current_time() + seconds
                while trio.current_time() < end:
                    await self._change(nursery, self._random.choice(self._possible()))
                await self._one_generation_reads_once()
                enough.set()
                await self._everything_committed()
                await self._all_leave()
                nursery.cancel_scope.cancel()
            self._every_record_was_read()
            self._java_reported_no_error()
            await self._observer.read_the_log()
        except BaseException as error:
            error.add_note(f"seed {self._plan.seed}, {self._plan.strategy}; happened: {self.history}")
            raise

    async def _create_topic(self) -> None:
        async with AdminClient(bootstrap_servers=self._terms.bootstrap) as admin:
            topic = NewTopic(self._terms.topic, num_partitions=self._plan.partitions, replication_factor=1)
            await admin.create_topics([topic])

    async def _produce(self, enough: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Produce records for each partition in turn, at an even pace, until the target."""
        async with Producer(bootstrap_servers=self._terms.bootstrap, linger_ms=5) as producer:
            task_status.started()
            number = 0
            while not enough.is_set():
                partition = number % self._plan.partitions
                await producer.send(self._terms.topic, b"%d" % number, partition=partition)
                self._produced[partition] += 1
                number += 1
                await trio.sleep(_PACE)
            await producer.flush()

    # ---------------------------------------------------------------- members

    async def _start(self, nursery: trio.Nursery, slot: int) -> MemberProcess:
        """Start the slot's client and wait until it is about to join."""
        client, static = self._plan.slots[slot]
        self._started += 1
        name = f"{client}-{slot}" if static else f"{client}-{slot}-{self._started}"
        terms = replace(self._terms, client_id=name, instance=name if static else None)
        member = MemberProcess(client, terms, self._something_changed)
        self._members[slot] = member
        self._all.append(member)
        nursery.start_soon(member.run, command(client, terms, self._java))
        with trio.fail_after(_START):
            await self._until(lambda: member.joining_since is not None)
        return member

    def _something_changed(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait for a report of members; a failure of any member is an error."""
        while not holds():
            self._nobody_failed()
            await self._news.wait()

    def _nobody_failed(self) -> None:
        for member in self._members.values():
            assert not member.failed and not member.fenced and not member.ended.is_set(), (
                f"{member.name} ended: {member.why()}"
            )

    async def _all_join(self, nursery: trio.Nursery) -> None:
        async with trio.open_nursery() as starting:
            for slot in range(len(self._plan.slots)):
                starting.start_soon(self._start, nursery, slot)
        await self._stable_again("all join", trio.current_time())

    async def _all_leave(self) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for member in self._members.values():
                nursery.start_soon(member.leave)
        self.history.append(("all left", round(trio.current_time() - began, 1)))
        for member in self._members.values():
            assert member.left, f"{member.name} did not leave cleanly: {member.why()}"

    # ---------------------------------------------------------------- conditions

    async def _stable_again(self, change: str, since: float, *, after_death: bool = False) -> None:
        """Poll until the group is stable: there is no event for that, and an observer can only ask."""
        allowed = self._plan.rebalance_timeout_ms / 1000
        allowed += self._plan.session_timeout_ms / 1000 if after_death else 0
        with trio.move_on_at(since + allowed):
            while True:
                self._nobody_failed()
                self._last = await self._observer.look()
                if self._is_stable(self._last):
                    self.history.append((change, round(trio.current_time() - since, 1)))
                    return
                await trio.sleep(_LOOK_AGAIN)
        says = {member.name: sorted(member.assigned or ()) for member in self._members.values()}
        raise AssertionError(f"not stable {allowed:.0f} s after: {change}\nseen: {self._last}\nmembers say: {says}")

    def _is_stable(self, seen: Seen) -> bool:
        reported = {member.name: member.assigned for member in self._members.values()}
        owners = Counter(partition for share in seen.shares.values() for partition in share)
        return (
            seen.state == "STABLE"
            and seen.shares == reported
            and owners == Counter(dict.fromkeys(range(self._plan.partitions), 1))
        )

    async def _everything_committed(self) -> None:
        """Poll until the group has committed the last record; there is no event for that either."""
        began = trio.current_time()
        with trio.move_on_after(_CATCH_UP):
            while True:
                self._nobody_failed()
                await self._observer.look()
                if self._observer.committed == dict(self._produced):
                    self.history.append(("caught up", round(trio.current_time() - began, 1)))
                    return
                await trio.sleep(_LOOK_AGAIN)
        behind = {p: (self._observer.committed.get(p), end) for p, end in self._produced.items()}
        raise AssertionError(f"not everything was committed: {behind}")

    async def _one_generation_reads_once(self) -> None:
        """Without changes, no record is returned twice; wait for records of every partition."""
        before = {member.name: len(member.reads) for member in self._members.values()}

        def read_since() -> list[tuple[int, int, int]]:
            members = self._members.values()
            return sorted((r.partition, r.first, r.last) for m in members for r in m.reads[before[m.name] :])

        began = trio.current_time()
        with trio.fail_after(_CATCH_UP):
            await self._until(lambda: {partition for partition, _, _ in read_since()} == set(self._produced))
        self.history.append(("read on", round(trio.current_time() - began, 1)))
        for one, other in pairwise(read_since()):
            assert one[0] != other[0] or one[2] < other[1], f"partition {one[0]}: {one[1:]} and {other[1:]} were read"

    def _every_record_was_read(self) -> None:
        for partition, end in self._produced.items():
            ranges = sorted(
                (read.first, read.last) for member in self._all for read in member.reads if read.partition == partition
            )
            reached = 0
            for first, last in ranges:
                assert first <= reached, f"no member has read {partition} from {reached} to {first}"
                reached = max(reached, last + 1)
            assert reached == end, f"no member has read {partition} from {reached} to {end}"

    def _java_reported_no_error(self) -> None:
        """Check that members have no errors, except a removal from the group, which they must report.

        A member that leaves during a reconciliation reports an error, with Apache Kafka, too. So does the Java assignor
        about two members that both come back from an old generation and do not say from which: aiokafka's never say it.
        """
        for member in self._all:
            if member.client == JAVA and not member.fenced and member.name not in self._expelled:
                errors = [
                    line
                    for line in member.errors_before_leaving
                    if (" ERROR " in line or "Exception" in line) and not _names_others_without_generation(line)
                ]
                assert not errors, f"{member.name}: {errors}"

    # ---------------------------------------------------------------- changes

    def _slots(self, *, static: bool | None = None, running: bool = True) -> list[int]:
        return [
            slot
            for slot, (_, is_static) in enumerate(self._plan.slots)
            if (slot in self._members) is running and static in (None, is_static)
        ]

    def _usurpable(self) -> list[int]:
        # A consumer of aiokafka that is fenced rejoins with the same instance id, and fences the other.
        return [slot for slot in self._slots(static=True) if self._plan.slots[slot][0] != "aiokafka"]

    def _possible(self) -> list[str]:
        """Return the kinds of changes that are possible now."""
        classic = self._plan.protocol == "classic"
        spare = len(self._members) > self._plan.at_least
        candidates: dict[str, object] = {
            "join": self._slots(running=False),
            "join while one is frozen": self._slots(running=False),
            "leave": spare and self._slots(static=False),
            "kill": spare,
            "expel and come back": self._members,
            "close and restart": self._slots(static=True),
            # A member of the new protocol without a leave request keeps its instance id until its session ends.
            "kill and restart": classic and self._slots(static=True),
            "usurp": classic and self._usurpable(),
        }
        return [kind for kind, someone in candidates.items() if someone]

    async def _change(self, nursery: trio.Nursery, kind: str) -> None:
        steps: dict[str, Callable[[trio.Nursery, str], Awaitable[None]]] = {
            "join": self._join,
            "join while one is frozen": self._join_while_one_is_frozen,
            "leave": self._leave,
            "kill": self._kill,
            "expel and come back": self._expel,
            "close and restart": self._restart,
            "kill and restart": self._restart,
            "usurp": self._usurp,
        }
        await steps[kind](nursery, kind)

    def _name(self, slot: int) -> str:
        return self._plan.slots[slot][0] + (" static" if self._plan.slots[slot][1] else "")

    async def _join(self, nursery: trio.Nursery, kind: str) -> None:
        slot = self._random.choice(self._slots(running=False))
        member = await self._start(nursery, slot)
        await self._stable_again(f"{kind}: {self._name(slot)}", member.joining_since or 0)

    async def _join_while_one_is_frozen(self, nursery: trio.Nursery, kind: str) -> None:
        frozen = self._random.choice(self._slots())
        slot = self._random.choice(self._slots(running=False))
        self._members[frozen].freeze()
        await self._start(nursery, slot)
        self._members[frozen].thaw()
        # Its session may end by now, if the other process took long to start.
        change = f"{kind}: {self._name(slot)}, {self._name(frozen)}"
        await self._stable_again(change, trio.current_time(), after_death=True)

    async def _leave(self, nursery: trio.Nursery, kind: str) -> None:
        slot = self._random.choice(self._slots(static=False))
        member = self._members.pop(slot)
        await member.leave()
        assert member.left, member.why()
        await self._stable_again(f"{kind}: {self._name(slot)}", trio.current_time())

    async def _kill(self, nursery: trio.Nursery, kind: str) -> None:
        slot = self._random.choice(self._slots())
        member = self._members.pop(slot)
        await member.kill()
        await self._stable_again(f"{kind}: {self._name(slot)}", trio.current_time(), after_death=True)

    async def _expel(self, nursery: trio.Nursery, kind: str) -> None:
        """Freeze one until the others have its partitions, then resume it."""
        slot = self._random.choice(self._slots())
        member = self._members[slot]
        # Java's consumer fails, on Apache Kafka as well, if it resumes with a lookup of positions in a group that has
        # removed it. So it must have all positions before.
        before = len(member.reads)
        await self._until(lambda: {read.partition for read in member.reads[before:]} >= (member.assigned or set()))
        del self._members[slot]
        self._expelled.add(member.name)
        member.freeze()
        await self._stable_again(f"freeze: {self._name(slot)}", trio.current_time(), after_death=True)
        self._members[slot] = member
        member.thaw()
        await self._stable_again(f"thaw: {self._name(slot)}", trio.current_time())

    async def _restart(self, nursery: trio.Nursery, kind: str) -> None:
        slot = self._random.choice(self._slots(static=True))
        member = self._members.pop(slot)
        await (member.leave if kind == "close and restart" else member.kill)()
        again = await self._start(nursery, slot)
        # Its session may have ended, if the process took long to start.
        await self._stable_again(f"{kind}: {self._name(slot)}", again.joining_since or 0, after_death=True)

    async def _usurp(self, nursery: trio.Nursery, kind: str) -> None:
        """Start another process with the same instance id while a static member is frozen, which is fenced and ends."""
        slot = self._random.choice(self._usurpable())
        older = self._members.pop(slot)
        older.freeze()
        newer = await self._start(nursery, slot)
        await self._stable_again(f"{kind}: {self._name(slot)}", newer.joining_since or 0, after_death=True)
        older.thaw()
        with trio.fail_after(self._plan.session_timeout_ms / 1000 + self._plan.rebalance_timeout_ms / 1000):
            await older.ended.wait()
        assert older.fenced, f"{older.name} ended otherwise: {older.why()}"
        await self._stable_again(f"fenced: {self._name(slot)}", trio.current_time())


def _names_others_without_generation(line: str) -> bool:
    """Whether the sticky assignor complains about two members of other clients, whose generation is unknown."""
    found = re.search(r"Found multiple consumers (\S+) and (\S+) claiming .* in the same generation -1\b", line)
    return found is not None and not any(name.startswith("ours") for name in found.groups())
