"""A broker's logs against a plain model, over a disk that crashes, tears writes and fails.

The seed determines each run: `tests.crashing` has the operations and the invariants. A failing run is printed with the
steps that it needs; ``python -m tests.crashing SEED`` runs it again. ``TRIOKAFKA_CRASH_SEEDS`` and
``TRIOKAFKA_CRASH_FIRST`` set the number of runs of the long test, and the first one.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.crashing.machine import Machine, explain, run_seed
from tests.crashing.model import Batch, Kept, PartitionModel
from tests.crashing.opened import Expected, adopt_cleaned, check_epochs, check_opened, note_lost_end
from tests.crashing.plan import Step, plan, shrink
from tests.support.simulated import run_seeds
from tests.unit.broker_stub.log.builders import NOW, TP, append, batch, config, open_log
from tests.unit.broker_stub.log.cleaner.logs import clean, compacted_log, put
from triokafka.broker_stub.log import PartitionLog
from triokafka.world.memory import MemoryStorage

RUNS = 500
LONG_RUNS = 20_000
MOVED_RUNS = 100

pytestmark = pytest.mark.usefixtures("quiet_log")


def check(seed: int) -> None:
    try:
        run_seed(seed)
    except Exception as error:
        raise AssertionError(explain(seed)) from error


def test_logs_keep_flushed_records_through_crashes_and_failures() -> None:
    """No flushed record is lost and none is invented, opening needs no manual repair, and offsets, epochs, producers,
    transactions and look-ups agree with the model.
    """
    for seed in range(RUNS):
        check(seed)


def test_a_move_interrupted_twice_leaves_one_log() -> None:
    """The process may die anywhere, and the power fails during the next start."""
    for seed in range(MOVED_RUNS):
        steps = plan(seed, 40)
        steps[9::10] = [Step("move_cut_twice", f"{seed}/moves/{number}") for number in range(4)]
        Machine(seed).run(steps)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_logs_keep_flushed_records_through_many_more_crashes() -> None:
    """The same, for as long as `make long` has time."""
    first = int(os.environ.get("TRIOKAFKA_CRASH_FIRST", "0")) or random.SystemRandom().randrange(10**9)
    count = int(os.environ.get("TRIOKAFKA_CRASH_SEEDS", str(LONG_RUNS)))
    print(f"crashing logs: seeds {first} to {first + count - 1}")
    run_seeds("crashing logs", range(first, first + count), check)


def test_no_epoch_is_expected_for_offsets_whose_visible_records_were_compacted() -> None:
    """The model retains records from before the log start, because the start may be lost; it cannot know whether they
    still exist (seed 70275859).
    """
    log = open_log(MemoryStorage(), config(cleanup_policy=("compact",)), log_start_offset=2)
    log.append_as_follower(batch(b"kept", base_offset=3, leader_epoch=4), now_ms=NOW)
    records = [Kept(offset, NOW, b"k", b"v") for offset in range(1, 4)]
    invisible, there = Batch(1, 3, records[:1], 0, NOW), Batch(3, 4, records[2:], 4, NOW)
    check_epochs(log, PartitionModel([invisible, there], start=2))
    for seen in (Batch(1, 3, records[:2], 0, NOW), Batch(2, 3, records[1:2], 0, NOW)):
        with pytest.raises(AssertionError, match="epoch at 2"):
            check_epochs(log, PartitionModel([seen, there], start=2))


def _log_that_lost_its_end() -> PartitionLog:
    """Return a log with offsets 0 and 1, and a placeholder for 2 and 3."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, batch(b"a", b"b"))
    log.close()
    return open_log(storage, recovery_point=2, high_watermark=4)


def _batch(start: int, end: int, *, key: bytes = b"k", producer_id: int = -1, emptied: bool = False) -> Batch:
    records = [] if emptied else [Kept(offset, NOW, key, b"v") for offset in range(start, end)]
    return Batch(start, end, records, 0, NOW, producer_id)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(647686240, id="truncation in the middle of a placeholder"),
        pytest.param(647686814, id="truncation between two lost batches"),
        pytest.param(647686913, id="power cut with an emptied batch at the end"),
        pytest.param(172584175, id="topic made anew after its log had lost its end"),
        pytest.param(387206450, id="high watermark in the middle of a lost batch"),
    ],
)
def test_formerly_failing_seed(seed: int) -> None:
    check(seed)


def test_truncation_within_a_placeholder_removes_all_of_it() -> None:
    """It is like any other batch: the model has two lost batches there, and the log has one without records."""
    log = _log_that_lost_its_end()
    model = PartitionModel([_batch(0, 2), _batch(2, 3), _batch(3, 4)], high_watermark=4)
    note_lost_end(log, model, durable_end=2, cleans=False)
    assert [b.lost for b in model.batches] == [False, True, True]
    assert [model.batch_start(offset) for offset in range(5)] == [0, 0, 2, 2, 4]
    log.truncate_to(3, now_ms=NOW)
    assert log.log_end_offset == model.batch_start(3) == 2
    model.cut(2)
    model.batches.append(_batch(2, 5))
    assert [model.batch_start(offset) for offset in range(2, 5)] == [2, 2, 2]


def test_placeholder_in_place_of_a_durable_batch_is_a_loss() -> None:
    """This holds also for a batch emptied by compaction: its header names the producer, and must not be lost."""
    log = _log_that_lost_its_end()
    for durable in (_batch(2, 4), _batch(2, 4, producer_id=7), _batch(2, 4, producer_id=7, emptied=True)):
        for cleans in (False, True):
            with pytest.raises(AssertionError, match="what was durable is lost"):
                note_lost_end(log, PartitionModel([_batch(0, 2), durable]), durable_end=4, cleans=cleans)
    for cleans in (False, True):  # the cleaner does not empty a batch of the active segment
        model = PartitionModel([_batch(0, 2), _batch(2, 4)])
        note_lost_end(log, model, durable_end=2, cleans=cleans)
        assert model.batches[1].lost
        assert model.placeholders == [range(2, 4)]


def test_placeholder_may_end_in_the_middle_of_a_lost_batch() -> None:
    """A follower may have fetched a part of that batch, so that the high watermark is within it."""
    there = Batch(0, 2, [Kept(0, NOW, b"k", b"a"), Kept(1, NOW + 1, b"k", b"b")], 0, NOW + 1)
    model = PartitionModel([there, _batch(2, 6)], high_watermark=4)
    log = _log_that_lost_its_end()
    check_opened(TP, log, model, Expected(), lossless=False, now_ms=NOW, compacted=False)
    assert (model.batches, model.end, model.placeholders) == ([there], 4, [range(2, 4)])
    log.skip_to(5, now_ms=NOW)
    model = PartitionModel([there, _batch(2, 6)])
    with pytest.raises(AssertionError, match="nothing is before the end"):
        check_opened(TP, log, model, Expected(), lossless=False, now_ms=NOW, compacted=False)


def test_batch_that_compaction_has_emptied_is_not_lost() -> None:
    """Its header ends the log once the batches behind it are truncated."""
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"1"), (b"b", b"1"), producer_id=8, producer_epoch=0, base_sequence=0)
    put(log, (b"a", b"2"))
    put(log, (b"a", b"3"), (b"b", b"3"))
    clean(log, storage)
    model = PartitionModel([_batch(0, 2, producer_id=8, key=b"a"), _batch(2, 3, key=b"a"), _batch(3, 5, key=b"a")])
    note_lost_end(log, model, durable_end=5, cleans=True)
    adopt_cleaned(log, model)
    assert [(len(b.records), b.removed, b.lost) for b in model.batches] == [
        (0, False, False),
        (0, True, False),
        (2, False, False),
    ]
    log.truncate_to(3, now_ms=NOW)
    assert log.log_end_offset == 2
    model.cut(2)
    note_lost_end(log, model, durable_end=2, cleans=False)
    assert not model.batches[0].lost
    assert not model.placeholders


def test_batch_that_compaction_has_removed_is_not_lost() -> None:
    """Its header is removed, too, and the log ends at the name of an empty segment."""
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"1" * 150), (b"b", b"1" * 150))
    log.roll(now_ms=NOW)
    put(log, (b"a", b"2" * 150), (b"b", b"2" * 150))
    clean(log, storage)
    model = PartitionModel([_batch(0, 2, key=b"a"), _batch(2, 4, key=b"a")])
    adopt_cleaned(log, model)
    assert [batch.removed for batch in model.batches] == [True, False]
    log.truncate_to(3, now_ms=NOW)
    assert (log.log_end_offset, log.size) == (2, 0)
    model.cut(2)
    note_lost_end(log, model, durable_end=2, cleans=False)
    assert not model.batches[0].lost
    model.batches[0].removed = False
    with pytest.raises(AssertionError, match="what was durable is lost"):
        note_lost_end(log, model, durable_end=2, cleans=False)


def test_a_run_can_be_repeated_and_reduced() -> None:
    """The same seed gives the same steps, and the reduction finds those that matter."""
    assert plan(5) == plan(5) != plan(6)
    assert shrink(range(60), lambda only: {3, 17, 59} <= set(only)) == [3, 17, 59]
    assert len(shrink(range(60), lambda only: len(only) >= 2)) == 2
