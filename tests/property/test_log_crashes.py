"""A broker's logs against a plain model, over a disk that crashes, tears and fails.

Each run is decided by its seed: `tests.crashing` says what is done and what must hold. A failing run is named with the
steps that it needs; ``python -m tests.crashing SEED`` does it again. ``TRIOKAFKA_CRASH_SEEDS`` and
``TRIOKAFKA_CRASH_FIRST`` set how many runs the long one does, and where it begins.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator

import pytest

from tests.crashing.machine import Machine, explain, run_seed
from tests.crashing.model import Batch, Kept, PartitionModel
from tests.crashing.opened import check_epochs
from tests.crashing.plan import Step, plan, shrink
from tests.support.simulated import run_seeds
from tests.unit.broker_stub.log.builders import NOW, batch, config, open_log
from triokafka.world.memory import MemoryStorage

RUNS = 500
LONG_RUNS = 20_000
MOVED_RUNS = 100


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Logs that are cut are warned of, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def check(seed: int) -> None:
    try:
        run_seed(seed)
    except Exception as error:
        raise AssertionError(explain(seed)) from error


def test_logs_are_what_was_appended_through_crashes_and_failures() -> None:
    """Nothing that was flushed is lost and nothing else is invented, opening needs no hand, and offsets, epochs,
    producers, transactions and look-ups agree with the model.
    """
    for seed in range(RUNS):
        check(seed)


def test_a_move_that_is_cut_twice_leaves_one_log() -> None:
    """Wherever its process dies, and the power fails in the next start."""
    for seed in range(MOVED_RUNS):
        steps = plan(seed, 40)
        steps[9::10] = [Step("move_cut_twice", f"{seed}/moves/{number}") for number in range(4)]
        Machine(seed).run(steps)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_logs_are_what_was_appended_through_many_more() -> None:
    """The same, for as long as `make long` has time."""
    first = int(os.environ.get("TRIOKAFKA_CRASH_FIRST", "0")) or random.SystemRandom().randrange(10**9)
    count = int(os.environ.get("TRIOKAFKA_CRASH_SEEDS", str(LONG_RUNS)))
    print(f"crashing logs: seeds {first} to {first + count - 1}")
    run_seeds("crashing logs", range(first, first + count), check)


def test_no_epoch_is_expected_where_all_that_readers_could_see_was_compacted_away() -> None:
    """The model keeps records from before the start, for that may be forgotten; whether they are there it cannot know
    (seed 70275859)."""
    log = open_log(MemoryStorage(), config(cleanup_policy=("compact",)), log_start_offset=2)
    log.append_as_follower(batch(b"kept", base_offset=3, leader_epoch=4), now_ms=NOW)
    records = [Kept(offset, NOW, b"k", b"v") for offset in range(1, 4)]
    unseen, there = Batch(1, 3, records[:1], 0, NOW), Batch(3, 4, records[2:], 4, NOW)
    check_epochs(log, PartitionModel([unseen, there], start=2))
    for seen in (Batch(1, 3, records[:2], 0, NOW), Batch(2, 3, records[1:2], 0, NOW)):
        with pytest.raises(AssertionError, match="epoch at 2"):
            check_epochs(log, PartitionModel([seen, there], start=2))


def test_a_run_can_be_repeated_and_made_shorter() -> None:
    """What a failure is told by: the same seed gives the same steps, and those that matter are found."""
    assert plan(5) == plan(5) != plan(6)
    assert shrink(range(60), lambda only: {3, 17, 59} <= set(only)) == [3, 17, 59]
    assert len(shrink(range(60), lambda only: len(only) >= 2)) == 2
