"""`async for` over records in a consumer's hand, compiled and plain."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from triokafka import kernels
from triokafka.records import cursor

NAME = "triokafka.records._cursor"
MODULES = [importlib.import_module(kernels.INDEPENDENT[NAME])]
if kernels.is_compiled(NAME):
    MODULES.append(importlib.import_module(NAME))


class Runs:
    """A cursor whose iterator is filled with one list after the other; then the iteration ends."""

    def __init__(self, module: Any, *runs: list[Any]) -> None:
        self.cursor = module.RecordCursor()
        self.left = [list(run) for run in runs]

    async def next_run(self) -> Any:
        if not self.left:
            raise StopAsyncIteration
        self.cursor.iterator = iter(self.left.pop(0))
        return next(self.cursor.iterator)


@pytest.fixture(params=MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def module(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_records_come_in_order_over_the_ends_of_runs(module: Any) -> None:
    sent = list(range(5))
    runs = Runs(module, sent[:2], sent[2:3], sent[3:])
    assert [one async for one in runs.cursor.over(runs.next_run)] == sent


@pytest.mark.parametrize("value", [(), (1, 2), None, StopIteration(3), ValueError("x")])
async def test_cursor_returns_deserialized_objects_unchanged(module: Any, value: object) -> None:
    runs = Runs(module, [value, value])
    assert [one async for one in runs.cursor.over(runs.next_run)] == [value, value]


async def test_unawaited_anext_loses_no_record(module: Any) -> None:
    runs = Runs(module, [1, 2, 3])
    records = aiter(runs.cursor.over(runs.next_run))
    assert await anext(records) == 1
    dropped = records.__anext__()
    getattr(dropped, "close", lambda: None)()
    del dropped
    first, second = records.__anext__(), records.__anext__()
    assert [await second, await first] == [2, 3]


async def test_anext_with_a_default(module: Any) -> None:
    runs = Runs(module, [1, 2])
    records = runs.cursor.over(runs.next_run)
    assert [await anext(records, None) for _ in range(3)] == [1, 2, None]


async def test_error_of_the_next_run_reaches_the_loop_and_the_iteration_continues_after_it(module: Any) -> None:
    runs = Runs(module, [1], [2])

    async def fails_once() -> Any:
        if len(runs.left) == 1 and not failures:
            failures.append(1)
            raise ValueError("damaged")
        return await runs.next_run()

    failures: list[int] = []
    records = runs.cursor.over(fails_once)
    assert await anext(records) == 1
    with pytest.raises(ValueError, match="damaged"):
        await anext(records)
    assert [one async for one in records] == [2]


async def test_cursor_filled_during_the_loop_continues_with_the_new_records(module: Any) -> None:
    runs = Runs(module, [1, 2, 3])
    seen = []
    async for one in runs.cursor.over(runs.next_run):
        seen.append(one)
        if one == 1:
            runs.cursor.iterator = iter(())  # `poll` put the rest back
            runs.left = [[2, 3]]
    assert seen == [1, 2, 3]


def test_the_compiled_one_runs_where_awaiting_it_is_cheap() -> None:
    compiled = kernels.is_compiled(NAME) and not kernels.wants_plain() and sys.version_info < (3, 12)
    assert cursor.RecordCursor.__module__ == (NAME if compiled else kernels.INDEPENDENT[NAME])
