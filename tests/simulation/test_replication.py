"""Eleven scenarios of replication over real logs, partitions and fetchers; see `tests.support.replica_world`.

A failure names the scenario and the seed: ``run(scenario, seed)`` repeats it.
"""

from __future__ import annotations

import os

import pytest

from tests.support.replica_producers import SequenceRepeated, Sequences
from tests.support.replica_world import SCENARIOS, run
from tests.unit.broker_stub.log.builders import append, from_producer, open_log
from triokafka.world.memory import MemoryStorage

SEEDS = int(os.environ.get("TRIOKAFKA_REPLICATION_SEEDS", "500"))
SEEDS_A_TEST = 100
MANY_SEEDS = 10_000

pytestmark = pytest.mark.usefixtures("quiet_log")


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_replicas_agree_and_no_committed_record_is_lost(scenario: str, first: int) -> None:
    acknowledged = 0
    seeds = range(first, min(first + SEEDS_A_TEST, SEEDS))
    for seed in seeds:
        try:
            world = run(scenario, seed)
        except Exception as error:
            error.add_note(f"run({scenario!r}, {seed})")
            raise
        acknowledged += sum(map(len, world.history.acknowledged.values()))
    assert acknowledged > len(seeds) / 2, "the scenario acknowledges too few records to be meaningful"


def test_repeated_diverging_response_does_not_truncate_later_fetched_records() -> None:
    """A schedule in which it did, and a committed record was lost."""
    run("responses are late, lost and doubled", 63_749, fetches_ahead=False)


def test_image_of_a_committed_in_sync_set_does_not_end_the_proposal_after_it() -> None:
    """A schedule in which it did: the high watermark passed a replica that was joining, and which led afterwards."""
    run("records are deleted while followers lag", 3_004_703, fetches_ahead=False)


def test_deleted_records_come_back_as_the_same_ones_in_all_replicas() -> None:
    """A schedule in which a follower had others: the leader forgot the epochs of deleted records, and both died."""
    run("records are deleted while followers lag", 3_006_725, fetches_ahead=False)


def test_followers_that_lag_send_fetches_before_they_apply_the_last_response() -> None:
    assert sum(run("logs diverge and are truncated", seed).sent_ahead for seed in range(5)) > 5


def test_sequence_number_that_is_twice_in_a_log_is_found() -> None:
    log, sequences = open_log(MemoryStorage()), Sequences()
    append(log, from_producer(b"a", sequence=0))
    sequences.refresh(log)
    append(log, from_producer(b"b", sequence=1), from_client=False)
    sequences.refresh(log)
    append(log, from_producer(b"b", sequence=1), from_client=False)
    with pytest.raises(SequenceRepeated, match=r"sequence=1.* at 1 and 2"):
        sequences.refresh(log)


def test_producers_send_batches_again() -> None:
    assert sum(run("leaders change fast (KIP-279)", seed).producers.retries for seed in range(5)) > 5


def test_a_seed_repeats_its_steps() -> None:
    name = next(iter(SCENARIOS))
    first, second = run(name, 3), run(name, 3)
    assert first.trace == second.trace and first.history == second.history


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_replicas_agree_in_many_schedules(scenario: str) -> None:
    for seed in range(SEEDS, MANY_SEEDS):
        try:
            run(scenario, seed)
        except Exception as error:
            error.add_note(f"run({scenario!r}, {seed})")
            raise
