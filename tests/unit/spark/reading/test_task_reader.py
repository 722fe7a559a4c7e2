"""How much of a task is read ahead of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import TaskRange
from triokafka.spark.reading import task_reader


@pytest.mark.parametrize(("given", "gathered"), [(None, 1), ("1", 1), ("4", 1), ("5", 2), ("8", 2)])
def test_fetch_ahead_counts_batches_as_spark_gets_them(
    given: str | None, gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of them are decoded in one call, and wait together."""
    asked: list[int] = []

    class Loop:
        def iterate(self, make: Callable[[], object], *, ahead: int) -> Iterator[Any]:
            asked.append(ahead)
            return iter(())

    monkeypatch.setattr(task_reader, "loop_thread", Loop)
    monkeypatch.setattr(task_reader, "keep_freed_memory", lambda: None)
    more = {} if given is None else {"fetchAhead": given}
    options = ReadOptions.parse({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", **more})
    assert list(task_reader.read_task(options, (TaskRange("t", 0, 0, 10),))) == []
    assert asked == [gathered]
