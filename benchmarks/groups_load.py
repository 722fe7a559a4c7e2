"""The loads of the group benchmark, each in its own process.

``python -m benchmarks.groups_load KIND JOB`` acts as the members. Its last line of output is JSON: the rows of one
`KINDS` entry.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

import trio

from benchmarks.groups_members import CONSUMER_HEARTBEAT, HEARTBEAT, ClassicCrew, ConsumerCrew, LoadError
from benchmarks.groups_probe import probing
from benchmarks.groups_wire import Wire, blast, close, connect, decoded, encoded
from benchmarks.processes import cpu_seconds, private_mib
from triokafka.cli.load.brokers import MeasurementError
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.heartbeat import HeartbeatResponse
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

TOPIC: Final = "load"
COMMIT: Final = 8
FETCH: Final = 8
_RETRIABLE: Final = (14, 15, 16)
_FIND: Final = 2
_TIMEOUT: Final = 300
_SHARED_WIRES: Final = 20
_COMMIT_WIRES: Final = 10
_WAVE: Final = 500
"""Connections whose joins wait at a time."""


class Job(NamedTuple):
    """The parameters of a load: ``partitions`` of the topic, and the parameters of its kind."""

    bootstrap: str
    pid: int
    partitions: int
    sizes: Sequence[int] = ()
    group: str = "load"
    groups: int = 0
    repeats: int = 1
    since: float = 0.0
    """The time of the broker's start, in seconds of ``time.monotonic``."""


class Spent:
    """The broker's cost of a block: seconds, processor seconds, bytes of responses, and other clients' waits."""

    seconds = 0.0
    cpu = 0.0
    answered = 0
    worst_ms = 0.0

    def row(self) -> list[float]:
        """Return all values."""
        return [self.seconds, self.cpu, self.answered, self.worst_ms]


@contextmanager
def _spending(job: Job, wires: Sequence[Wire]) -> Iterator[Spent]:
    spent = Spent()
    with probing(job.bootstrap) as stall:
        began, cpu, received = time.monotonic(), cpu_seconds(job.pid), sum(wire.received for wire in wires)
        yield spent
        spent.seconds = time.monotonic() - began
        spent.cpu = cpu_seconds(job.pid) - cpu
        spent.answered = sum(wire.received for wire in wires) - received
    spent.worst_ms = stall.worst_ms


# -------------------------------------------------------------------- members


async def classic(job: Job) -> list[Any]:
    """For each size, a group forms, one member joins, one leaves. Measures KiB per member and the cost of each step."""
    rows = []
    for size in job.sizes:
        group = f"{job.group}-classic-{size}"
        wires = await _connected(job, group, size + 1)
        crew = ClassicCrew(group, TOPIC, job.partitions)
        steps = (partial(crew.form, wires[:-1]), partial(crew.add, wires[-1]), crew.remove)
        rows.append([size, *await _stepped(job, size, wires, steps)])
        await close(wires)
    return rows


async def consumer(job: Job) -> list[Any]:
    """As `classic`, under the protocol of KIP-848."""
    rows = []
    for size in job.sizes:
        group = f"{job.group}-consumer-{size}"
        wires = await _connected(job, group, min(size, _SHARED_WIRES))
        crew = ConsumerCrew(group, TOPIC, job.partitions, wires)
        rows.append([size, *await _stepped(job, size, wires, (partial(crew.form, size), crew.add, crew.remove))])
        await close(wires)
    return rows


async def _stepped(
    job: Job, size: int, wires: Sequence[Wire], steps: Sequence[Callable[[], Awaitable[None]]]
) -> list[Any]:
    """Return KiB per member after the first step, and the cost of each step."""
    before, kib = private_mib(job.pid), 0.0
    costs: list[list[float]] = []
    for step in steps:
        with _spending(job, wires) as spent:
            await step()
        if not costs:
            kib = (private_mib(job.pid) - before) * 1024 / size
        costs.append(spent.row())
    return [kib, *costs]


async def many(job: Job) -> list[Any]:
    """Form ``groups`` groups of the first of ``sizes`` members, then heartbeat ``repeats`` times."""
    each = job.sizes[0]
    crews = [ClassicCrew(f"{job.group}-many-{number}", TOPIC, job.partitions) for number in range(job.groups)]
    waves = [crews[first : first + _WAVE // each] for first in range(0, len(crews), _WAVE // each)]
    wires = await _connected(job, f"{job.group}-many-0", len(waves[0]) * each)
    before = private_mib(job.pid)
    with _spending(job, wires) as formed:
        for wave in waves:
            async with trio.open_nursery() as nursery:
                for number, crew in enumerate(wave):
                    nursery.start_soon(crew.form, wires[number * each : (number + 1) * each])
    kib = (private_mib(job.pid) - before) * 1024 / (job.groups * each)
    members = [member for crew in crews for member in crew.members]
    frames = [encoded(member.heartbeat(), HEARTBEAT) for member in members]
    beaten = await _beat(job, wires[:_SHARED_WIRES], frames, HeartbeatResponse, HEARTBEAT)
    await close(wires)
    return [[job.groups, each, kib, formed.row(), beaten]]


async def many_consumers(job: Job) -> list[Any]:
    """As `many`, under the protocol of KIP-848."""
    each = job.sizes[0]
    wires = await _connected(job, f"{job.group}-many-consumers-0", _SHARED_WIRES)
    crews = [
        ConsumerCrew(f"{job.group}-many-consumers-{number}", TOPIC, job.partitions, [wires[number % len(wires)]])
        for number in range(job.groups)
    ]
    before = private_mib(job.pid)
    with _spending(job, wires) as formed:
        async with trio.open_nursery() as nursery:
            for first in range(len(wires)):
                nursery.start_soon(_form_all, crews[first :: len(wires)], each)
    kib = (private_mib(job.pid) - before) * 1024 / (job.groups * each)
    members = [member for crew in crews for member in crew.members]
    frames = [encoded(member.heartbeat(), CONSUMER_HEARTBEAT) for member in members]
    beaten = await _beat(job, wires, frames, ConsumerGroupHeartbeatResponse, CONSUMER_HEARTBEAT)
    await close(wires)
    return [[job.groups, each, kib, formed.row(), beaten]]


async def _form_all(crews: Sequence[ConsumerCrew], each: int) -> None:
    for crew in crews:
        await crew.form(each)


async def _beat(job: Job, wires: Sequence[Wire], frames: list[bytes], answer: Any, version: int) -> list[float]:
    with _spending(job, wires) as spent:
        answers = await blast(wires, frames * job.repeats)
    _check(answers, lambda frame: [decoded(answer, frame, version).error_code])
    return [len(answers), *spent.row()]


# -------------------------------------------------------------------- offsets


async def commits(job: Job) -> list[Any]:
    """For each number of partitions in a request: commit offsets, then fetch all offsets of a group."""
    groups = [f"{job.group}-commits-{number}" for number in range(_COMMIT_WIRES)]
    wires = await _connected(job, groups[0], _COMMIT_WIRES)
    await blast(wires, [encoded(_commit(group, range(job.partitions)), COMMIT) for group in groups])
    rows: list[Any] = []
    for size in job.sizes:
        requests = max(200, min(4_000, job.repeats // size))
        starts = [number * size % job.partitions for number in range(requests)]
        frames = [
            encoded(_commit(groups[number % len(groups)], range(start, start + size)), COMMIT)
            for number, start in enumerate(starts)
        ]
        with _spending(job, wires) as spent:
            answers = await blast(wires, frames)
        _check(answers, _commit_errors)
        rows.append(["commit", size, requests * size, *spent.row()])
    fetch = [encoded(_fetch([group]), FETCH) for group in groups]
    repeats = max(1, job.repeats // job.partitions // len(groups))
    with _spending(job, wires) as spent:
        answers = await blast(wires, fetch * repeats)
    _check(answers, lambda frame: [group.error_code for group in decoded(OffsetFetchResponse, frame, FETCH).groups])
    rows.append(["fetch", job.partitions, len(answers) * job.partitions, *spent.row()])
    await close(wires)
    return rows


async def fill(job: Job) -> list[Any]:
    """Let ``groups`` groups commit all partitions ``repeats`` times."""
    wires = await _connected(job, f"{job.group}-0", _COMMIT_WIRES)
    names = _names(job)
    with _spending(job, wires) as spent:
        for _ in range(job.repeats):
            rest = iter(names)
            while some := list(islice(rest, 100)):
                frames = [encoded(_commit(name, range(job.partitions)), COMMIT) for name in some]
                _check(await blast(wires, frames), _commit_errors)
    await close(wires)
    return [[job.groups * job.partitions * job.repeats, *spent.row()]]


async def serving(job: Job) -> list[Any]:
    """Ask a freshly started broker for every group's positions.

    Returns the seconds from the start until all responses have arrived, the broker's processor seconds so far, and the
    longest wait of another client meanwhile.
    """
    names = _names(job)
    (wire,) = await connect(job.bootstrap, 1)
    with probing(job.bootstrap) as stall:
        for name in names:
            while True:
                answer = await wire.ask(_fetch([name], range(1)), FETCH)
                (found,) = answer.groups
                if found.error_code in _RETRIABLE:
                    await trio.sleep(0.01)
                    continue
                if found.error_code or found.topics[0].partitions[0].committed_offset < 0:
                    raise LoadError(f"positions of {name} are gone: {found}")
                break
        seconds, cpu = time.monotonic() - job.since, cpu_seconds(job.pid)
    await wire.aclose()
    return [[seconds, cpu, stall.worst_ms]]


def _names(job: Job) -> list[str]:
    return [f"{job.group}-{number}" for number in range(job.groups)]


def _commit(group: str, partitions: range) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=number, committed_offset=123_456_789 + number)
                    for number in partitions
                ],
            )
        ],
    )


def _fetch(groups: Sequence[str], partitions: range | None = None) -> OffsetFetchRequest:
    from triokafka.protocol.api.offset_fetch import OffsetFetchRequestTopics

    topics = None if partitions is None else [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(partitions))]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics) for group in groups])


def _commit_errors(frame: bytes) -> list[int]:
    answer = decoded(OffsetCommitResponse, frame, COMMIT)
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def _check(answers: Sequence[bytes], errors: Callable[[bytes], list[int]]) -> None:
    """Check that no response has an error. Equal responses are decoded only once."""
    for frame in {frame[4:]: frame for frame in answers}.values():
        if any(errors(frame)):
            raise LoadError(f"a request was refused with error {next(filter(None, errors(frame)))}")


async def _connected(job: Job, group: str, count: int) -> list[Wire]:
    """Return connections to the group's coordinator, all of them in use, once it is available."""
    wires = await connect(job.bootstrap, count)
    while True:
        found = await wires[0].ask(FindCoordinatorRequest(key=group), _FIND)
        if not found.error_code:
            answer = await wires[0].ask(_fetch([group], range(1)), FETCH)
            if answer.groups[0].error_code not in _RETRIABLE:
                break
        await trio.sleep(0.1)
    for wire in wires:
        await wire.ask(ApiVersionsRequest(), 0)
    return wires


KINDS: Final[dict[str, Callable[[Job], Awaitable[list[Any]]]]] = {
    load.__name__: load for load in (classic, consumer, many, many_consumers, commits, fill, serving)
}


def run(kind: str, job: Job) -> list[Any]:
    """Run a load in its own process and return its rows. Raises `MeasurementError`."""
    command = [sys.executable, "-m", "benchmarks.groups_load", kind, json.dumps(job._asdict())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"{kind}: no result after {_TIMEOUT} s") from None
    if done.returncode != 0 or not done.stdout.strip():
        words = done.stderr.strip().splitlines()
        raise MeasurementError(f"{kind}: {words[-1] if words else f'exit status {done.returncode}'}")
    rows: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return rows


if __name__ == "__main__":
    print(json.dumps(trio.run(KINDS[sys.argv[1]], Job(**json.loads(sys.argv[2])))), flush=True)
