"""The kernel of `send`: records in chunks, and their futures. The compiled module and its twin do the same."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from triokafka import kernels
from triokafka.asyncio.structs import RecordMetadata
from triokafka.errors import KafkaTimeoutError
from triokafka.structs import TopicPartition

NAME = "triokafka.asyncio.producer._sending"
MODULES = [importlib.import_module(kernels.INDEPENDENT[NAME])]
if kernels.is_compiled(NAME):
    MODULES.append(importlib.import_module(NAME))
PLACE = TopicPartition("orders", 3)


@pytest.fixture(params=MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def kernel(request: pytest.FixtureRequest) -> Any:
    return request.param


def in_loop(program: Callable[[], Awaitable[None]]) -> None:
    """Run the program with a time limit."""

    async def limited() -> None:
        await asyncio.wait_for(program(), 30)

    asyncio.run(limited())


def new_chunk(kernel: Any, *, acked: bool = True) -> Any:
    return kernel.Chunk(asyncio.get_running_loop(), "orders", acked)


def metadata(offset: int, timestamp: int) -> RecordMetadata:
    return RecordMetadata("orders", 3, PLACE, offset, timestamp, 0, None)


def test_columns_are_missing_or_have_an_element_for_each_record(kernel: Any) -> None:
    async def program() -> None:
        chunk = new_chunk(kernel)
        chunk.append(b"a", None, None, None, None, 10)
        chunk.append(None, b"k", 1, 7, [("h", b"x")], 20)
        chunk.append(b"c", None, None, None, None, 30)
        assert chunk.size == 60
        assert chunk.columns() == {
            "values": [b"a", None, b"c"],
            "keys": [None, b"k", None],
            "partition": [None, 1, None],
            "timestamp_ms": [None, 7, None],
            "headers": [[], [("h", b"x")], []],
        }
        assert (chunk.values, chunk.keys) == ([], None)

    in_loop(program)


def test_future_of_an_acknowledged_record_has_its_metadata(kernel: Any) -> None:
    async def program() -> None:
        chunk = new_chunk(kernel)
        futures = [chunk.append(b"", None, None, None, None, 1) for _ in range(5)]
        with pytest.raises(asyncio.InvalidStateError):
            futures[0].result()
        chunk.settle(1, 3, kernel.Acknowledged(PLACE, 1, range(40, 42), [7, 8], 0))
        chunk.settle(3, 5, kernel.Acknowledged(PLACE, 3, -1, 9, 0))
        assert [future.done() for future in futures] == [False, True, True, True, True]
        assert [await future for future in futures[1:]] == [
            *(metadata(40, 7), metadata(41, 8)),
            *(metadata(-1, 9), metadata(-1, 9)),
        ]
        assert futures[2].result() == metadata(41, 8)
        assert futures[2].exception() is None

    in_loop(program)


def test_future_without_acknowledgement_has_the_result_none(kernel: Any) -> None:
    async def program() -> None:
        chunk = new_chunk(kernel, acked=False)
        future = chunk.append(b"", None, None, None, None, 1)
        chunk.settle(0, 1, kernel.Acknowledged(None, 0, 0, 0, 0))
        assert future.done()
        assert await future is None

    in_loop(program)


def test_future_wakes_every_kind_of_waiter(kernel: Any) -> None:
    async def program() -> None:
        chunk = new_chunk(kernel)
        futures = [chunk.append(b"", None, None, None, None, 1) for _ in range(4)]
        called: list[Any] = []

        async def awaits(future: Any) -> Any:
            return await future

        futures[3].add_done_callback(called.append)
        waiting = asyncio.gather(
            asyncio.create_task(awaits(futures[0])),
            asyncio.create_task(awaits(futures[0])),
            asyncio.gather(futures[1], futures[2]),
            asyncio.wait_for(futures[1], 10),
            asyncio.wait([futures[2]], return_when=asyncio.FIRST_COMPLETED),
            asyncio.shield(futures[1]),
        )
        await asyncio.sleep(0)
        assert asyncio.isfuture(futures[0])
        assert isinstance(futures[0], asyncio.Future)
        chunk.settle(0, 4, kernel.Acknowledged(PLACE, 0, range(4), 5, 0))
        first, again, both, limited, (done, pending), shielded = await waiting
        assert (first, again, limited, shielded) == (metadata(0, 5), metadata(0, 5), metadata(1, 5), metadata(1, 5))
        assert both == [metadata(1, 5), metadata(2, 5)]
        assert (done, pending) == ({futures[2]}, set())
        assert called == [futures[3]]

    in_loop(program)


def test_removed_callback_is_not_called(kernel: Any) -> None:
    async def program() -> None:
        chunk = new_chunk(kernel)
        future = chunk.append(b"", None, None, None, None, 1)
        called: list[Any] = []
        future.add_done_callback(called.append)
        assert future.remove_done_callback(called.append) == 1
        chunk.settle(0, 1, kernel.Acknowledged(PLACE, 0, 1, 5, 0))
        await asyncio.sleep(0)
        assert not called

    in_loop(program)


def test_cancelled_future_stays_cancelled_when_the_record_is_acknowledged(kernel: Any) -> None:
    async def program() -> None:
        chunk = new_chunk(kernel)
        future = chunk.append(b"", None, None, None, None, 1)

        async def awaits() -> None:
            await future

        task = asyncio.create_task(awaits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert future.cancelled()
        chunk.settle(0, 1, kernel.Acknowledged(PLACE, 0, 1, 5, 0))
        assert future.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await future

    in_loop(program)


def test_each_record_of_a_failed_batch_raises_an_error_of_its_own(kernel: Any) -> None:
    async def program() -> None:
        chunk = new_chunk(kernel)
        futures = [chunk.append(b"", None, None, None, None, 1) for _ in range(3)]
        waiting = asyncio.create_task(asyncio.wait([futures[0]]))
        await asyncio.sleep(0)
        failure = KafkaTimeoutError("too late")
        chunk.settle(0, 3, failure)
        await waiting
        errors = [future.exception() for future in futures]
        for future in futures:
            with pytest.raises(KafkaTimeoutError, match="too late"):
                await future
        assert len({id(error) for error in [failure, *errors]}) == 4

    in_loop(program)


@pytest.mark.parametrize("dropped", ["before", "after", "batch", "seen"])
def test_unobserved_failure_reaches_the_exception_handler(kernel: Any, dropped: str) -> None:
    async def program() -> None:
        errors: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
        chunk = new_chunk(kernel)
        future = chunk.append(b"", None, None, None, None, 1)
        if dropped in ("before", "batch"):
            del future
        if dropped == "batch":
            chunk.forget()
        chunk.settle(0, 1, KafkaTimeoutError("too late"))
        if dropped == "seen":
            with pytest.raises(KafkaTimeoutError):
                await future
        if dropped in ("after", "seen"):
            del future
        gc.collect()
        await asyncio.sleep(0)
        assert [type(error) for error in errors] == ([] if dropped in ("seen", "batch") else [KafkaTimeoutError])

    in_loop(program)


def test_fast_path_refuses_unchecked_arguments_and_full_chunks(kernel: Any) -> None:
    async def program() -> None:
        async def slow_path(*arguments: Any) -> tuple[Any, ...]:
            return arguments

        known = kernel.Topic()
        known.count = 2
        path = kernel.SendPath({"orders": known}, slow_path, 80, 3, 400)
        assert path.append("orders", b"v", None, None) is None  # not enabled
        path.enabled = True
        assert path.append("orders", b"v", None, None) is None  # no chunk
        known.chunk = chunk = new_chunk(kernel)
        refused = [
            *(("other", b"v", None, None), ("orders", None, b"k", None), ("orders", bytearray(b"v"), None, None)),
            *(("orders", b"v", "k", None), ("orders", b"v", None, 2), ("orders", b"v", None, -1)),
            *(("orders", b"v", None, True), ("orders", b"v" * 400, None, None)),
        ]
        assert [path.append(*one) for one in refused] == [None] * len(refused)
        assert await path.send("orders", b"v", None, None, 5) == ("orders", b"v", None, None, 5, None)
        assert await path.send("orders", b"v", headers=[("a", b"")]) == (
            *("orders", b"v", None, None, None),
            [("a", b"")],
        )
        assert chunk.values == []
        for number in range(3):
            assert isinstance(await path.send("orders", b"v", key=b"k", partition=number % 2), kernel.SendFuture)
        assert (chunk.values, chunk.keys, chunk.partitions) == ([b"v"] * 3, [b"k"] * 3, [0, 1, 0])
        assert chunk.size == 3 * 82
        assert path.append("orders", b"v", None, None) is None  # full

    in_loop(program)


def test_send_that_is_no_plain_call_is_still_a_coroutine(kernel: Any) -> None:
    async def program() -> None:
        async def slow_path(*arguments: Any) -> str:
            await asyncio.sleep(0)
            return "slow"

        path = kernel.SendPath({}, slow_path, 80, 3, 400)
        assert asyncio.iscoroutine(sending := path.send("orders", b"v"))
        assert await asyncio.create_task(sending) == "slow"
        assert await asyncio.gather(path.send("orders", b"v"), asyncio.wait_for(path.send("orders"), 10)) == [
            *("slow", "slow")
        ]
        assert asyncio.iscoroutinefunction(path.send)
        assert inspect.iscoroutinefunction(path.send)

    in_loop(program)


def test_send_does_nothing_before_it_is_awaited_and_says_so(kernel: Any) -> None:
    async def program() -> None:
        known = kernel.Topic()
        known.count, known.chunk = 1, new_chunk(kernel)
        path = kernel.SendPath({"orders": known}, asyncio.sleep, 80, 10, 4_000)
        path.enabled = True
        sending = path.send("orders", b"v")
        with pytest.warns(RuntimeWarning, match=r"send' was never awaited"):
            del sending
            gc.collect()
        path.send("orders", b"v").close()
        assert known.chunk.values == []
        sending = path.send("orders", b"v")
        assert isinstance(await sending, kernel.SendFuture)
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await sending
        task = asyncio.create_task(path.send("orders", b"v"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert known.chunk.values == [b"v"]

    in_loop(program)


@pytest.mark.parametrize("answered", [True, False])
def test_cancellation_of_a_send_on_the_slow_path_reaches_it(kernel: Any, answered: bool) -> None:
    async def program() -> None:
        ended: list[str] = []

        async def slow_path(*arguments: Any) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                if answered:
                    return "late"
                raise
            raise AssertionError("the event was set")

        sending = kernel.SendPath({}, slow_path, 80, 3, 400).send("orders", b"v")
        task = asyncio.create_task(sending)
        await asyncio.sleep(0)
        assert task.get_stack()
        task.cancel()
        if answered:
            assert await task == "late"
        else:
            with pytest.raises(asyncio.CancelledError):
                await task
        assert ended == ["cancelled"]

    in_loop(program)
