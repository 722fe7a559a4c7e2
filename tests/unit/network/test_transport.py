"""Trio's streams behind our stream interface."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from triokafka.network.transport import TrioStream, discard


async def test_stream_delivers_all_bytes_in_order() -> None:
    near, far = trio.testing.memory_stream_pair()
    stream = TrioStream(near, ("h", 1))
    buffers = [b"a", bytearray(b"bc"), memoryview(bytes(100_000)), b"", b"d"]
    assert stream.try_send(*buffers) == 0  # type: ignore[arg-type]  # Trio's streams cannot do that
    await stream.send(*buffers)  # type: ignore[arg-type]
    assert await far.receive_some() == b"abc" + bytes(100_000) + b"d"
    await far.send_all(b"answer")
    room = memoryview(bytearray(4))
    assert [bytes(room[: await stream.receive_into(room)]) for _ in range(2)] == [b"answ", b"er"]
    await far.aclose()
    assert await stream.receive_into(room) == 0
    assert stream.peer_address == ("h", 1)


async def test_broken_stream_is_an_os_error() -> None:
    near, far = trio.testing.memory_stream_pair()
    stream = TrioStream(near, ("h", 1))
    await far.aclose()
    with pytest.raises(OSError, match="the stream broke"):
        await stream.send(b"x")


async def test_close_wakes_waiters_and_refuses_later_calls() -> None:
    near, _far = trio.testing.memory_stream_pair()
    stream = TrioStream(near, ("h", 1))

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive_into(memoryview(bytearray(1)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        stream.close()
        stream.close()
    with pytest.raises(trio.ClosedResourceError):
        await stream.send(b"x")


async def test_stream_is_closed_permanently_also_by_a_task_that_is_cancelled_or_when_closing_fails() -> None:
    class Odd(trio.abc.Stream):
        closed = 0

        async def send_all(self, data: object) -> None: ...
        async def wait_send_all_might_not_block(self) -> None: ...
        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            return b""

        async def aclose(self) -> None:
            self.closed += 1
            await trio.lowlevel.checkpoint()
            raise RuntimeError("a bug in closing")

    odd = Odd()
    with trio.CancelScope() as scope:
        scope.cancel()
        await discard(TrioStream(odd, ("h", 1)))
    await discard(TrioStream(odd, ("h", 1)))
    assert odd.closed == 2
