"""The choice of a record's partition."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as peer_murmur2

from triokafka.client.producer.partitioner import KeyHash, choose_sticky, murmur2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"abc", 479470107),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_hash_equals_javas(key: bytes, java: int) -> None:
    assert murmur2(key) == java & 0xFFFFFFFF
    assert KeyHash()(key) == java & 0x7FFFFFFF


@given(st.binary(max_size=80))
def test_hash_equals_another_clients_for_any_length(key: bytes) -> None:
    assert murmur2(key) == peer_murmur2(key) & 0xFFFFFFFF
    assert murmur2(memoryview(bytearray(key))) == murmur2(key)


def test_cached_hashes_are_equal_and_bounded() -> None:
    remembered = KeyHash()
    for i in range(20_000):
        remembered(b"%d" % i)
    assert len(remembered._known) <= 16_384
    assert remembered(b"19999") == murmur2(b"19999") & 0x7FFFFFFF


def chosen(lengths: dict[int, int], available: Any, partitions: range) -> Counter[int]:
    return Counter(choose_sticky(available, partitions, lengths.__getitem__, i / 1000) for i in range(1000))


def test_equally_loaded_partitions_are_chosen_equally() -> None:
    assert chosen({0: 2, 1: 2, 2: 2, 3: 2}, range(4), range(4)) == {0: 250, 1: 250, 2: 250, 3: 250}


def test_partitions_with_long_queues_are_chosen_less_often() -> None:
    """KIP-794."""
    counts = chosen({0: 0, 1: 3, 2: 1}, range(3), range(3))
    assert counts[0] > counts[2] > counts[1] > 0


def test_without_a_leader_anywhere_one_of_all_is_chosen() -> None:
    assert set(chosen({0: 0, 1: 0}, (), range(2))) == {0, 1}
    assert set(chosen({0: 0, 1: 0}, (1,), range(2))) == {1}
