"""What the broker's command does about Python's garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from triokafka.cli.broker import _Settling


@pytest.fixture
def settling() -> Iterator[_Settling]:
    callback = _Settling(times=3)
    gc.disable()  # looks only when it is told to
    gc.callbacks.append(callback)
    yield callback
    gc.callbacks.remove(callback)
    gc.unfreeze()
    gc.enable()


def test_objects_that_stay_are_not_looked_at_again_and_again(settling: _Settling) -> None:
    kept = [[number] for number in range(50_000)]
    gc.collect(0)
    assert not gc.get_freeze_count(), "what is new may be garbage soon"
    gc.collect(1)
    assert gc.get_freeze_count() > len(kept)


def test_cycles_among_objects_that_stayed_are_found_sometimes(settling: _Settling) -> None:
    gc.collect(1)
    gc.collect(1)
    assert gc.get_freeze_count()
    gc.collect(1)
    assert not gc.get_freeze_count()
