"""Python's garbage collection in the broker's command."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from triokafka.cli.broker_run import _Settling


@contextmanager
def settling(times: int = 3) -> Iterator[None]:
    gc.disable()  # it collects only on request
    gc.unfreeze()  # objects from before the tests
    callback = _Settling(times)
    gc.callbacks.append(callback)
    try:
        yield
    finally:
        gc.callbacks.remove(callback)
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        gc.enable()


class Knot:
    """Refers to itself: only a search for cycles frees it."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Knot.alive += 1

    def __del__(self) -> None:
        Knot.alive -= 1


def test_objects_that_stay_are_not_looked_at_again_and_again() -> None:
    with settling():
        survivors = [[number] for number in range(50_000)]
        gc.collect(0)
        assert not gc.get_freeze_count(), "new objects may become garbage soon"
        gc.collect(1)
        assert gc.get_freeze_count() > len(survivors)


def test_cycles_among_objects_that_stayed_are_found_when_these_have_become_many() -> None:
    """Only a full collection finds them; collections of younger objects before it do not."""
    with settling():
        knots = [Knot() for _ in range(10)]
        gc.collect(1)
        knots.clear()
        gc.collect(1)
        assert Knot.alive == 10
        gc.collect(1)  # there were none that stayed when it began
        assert not gc.get_freeze_count()
        gc.collect(1)
        assert (gc.get_freeze_count(), Knot.alive) == (0, 10)
        gc.collect(2)
        assert gc.get_freeze_count()
        assert Knot.alive == 0


def test_a_broker_that_does_not_grow_never_looks_at_everything() -> None:
    with settling():
        gc.freeze()
        for _ in range(10):
            gc.collect(1)
            assert gc.get_freeze_count()
