"""Reading the frames of requests."""

from __future__ import annotations

import tracemalloc

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.network.streams import ScriptedStream
from triokafka.broker_stub.network.framing import FrameBuffers, FrameReader
from triokafka.errors import ProtocolError


def allocated_by_framing() -> int:
    """Bytes that the framing module has allocated and not freed."""
    traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/network/framing.py")])
    return sum(trace.size for trace in traces.statistics("filename"))


def framed(*bodies: bytes) -> bytes:
    """Bodies with their size prefixes."""
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@pytest.mark.parametrize("piece", [1, 3, 4, 5, 4096, 100_000])
async def test_frames_come_out_whole_however_the_bytes_arrive(piece: int) -> None:
    """Pipelined frames are buffered and returned one by one, wherever they are split."""
    bodies = [b"", b"a", b"bc" * 3000, b"d" * 4092, b"e" * 20_000, b"f"]
    data = framed(*bodies)
    stream = ScriptedStream(*(data[i : i + piece] for i in range(0, len(data), piece)))
    reader = FrameReader(stream, max_bytes=20_000)
    for body in bodies:
        assert bytes(await reader.read() or b"") == body
    assert await reader.read() is None


async def test_frame_that_is_here_is_taken_without_waiting_and_no_part_of_one() -> None:
    reader = FrameReader(ScriptedStream(framed(b"", b"first", b"second")[:-1], b"d"), max_bytes=100)
    for body in (b"", b"first"):
        assert await reader.read_size() == len(body)
        assert bytes(reader.take_body(len(body)) or b"") == body
    assert await reader.read_size() == 6
    assert reader.take_body(6) is None
    assert bytes(await reader.read_body(6)) == b"second"


async def test_frames_that_fit_into_the_enlarged_buffer_need_no_other_memory_while_they_arrive() -> None:
    """A Produce request with one batch of the default size is such a frame."""
    bodies = [bytes([number]) * 16_500 for number in range(1, 5)]
    data = framed(*bodies)
    buffers, reserved = FrameBuffers(), []

    async def reserve(total: int) -> None:
        reserved.append(total)

    reader = FrameReader(
        ScriptedStream(*(data[i : i + 10_000] for i in range(0, len(data), 10_000))), max_bytes=20_000, buffers=buffers
    )
    for body in bodies:
        size = await reader.read_size()
        assert size is not None
        assert await reader.read_body(size, reserve) == body
        reader.done()
    assert reserved == [16_500], "only the first frame found a small buffer"
    assert buffers.kept == 0


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
async def test_size_out_of_bounds_is_refused_before_anything_is_allocated(size: int) -> None:
    reader = FrameReader(ScriptedStream(size.to_bytes(4, "big", signed=True), end=False), max_bytes=1000)
    with pytest.raises(ProtocolError, match=r"socket\.request\.max\.bytes"):
        await reader.read()


async def test_size_at_the_limit_is_accepted() -> None:
    reader = FrameReader(ScriptedStream(framed(b"x" * 1000)), max_bytes=1000)
    assert bytes(await reader.read() or b"") == b"x" * 1000


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0", framed(b"hello")[:-1], framed(b"x" * 9000)[:5000]])
async def test_peer_that_closes_within_a_frame_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="the peer closed"):
        await FrameReader(ScriptedStream(data), max_bytes=10_000).read()


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", r"b'GET / HT': text, as of HTTP\)"),
        (bytes.fromhex("16030100f4010000f003"), r"b'\\x16\\x03.*': TLS, which this listener does not expect\)"),
        (b"\x7f\xff\xff\xff", r"b'\\x7f\\xff\\xff\\xff'\)"),
    ],
)
async def test_foreign_protocol_is_refused_and_guessed(sent: bytes, what: str) -> None:
    """The log names the first bytes, and the commonest mistakes."""
    with pytest.raises(ProtocolError, match=rf"\(first bytes {what} is outside 0 to 1000"):
        await FrameReader(ScriptedStream(sent, end=False), max_bytes=1000).read()


async def test_frame_may_be_changed_and_kept_while_the_next_is_read() -> None:
    """Records of a request are patched in place by the log."""
    reader = FrameReader(ScriptedStream(framed(b"first", b"other")), max_bytes=100)
    first = await reader.read()
    assert first is not None
    first[0:1] = b"F"
    assert bytes(await reader.read() or b"") == b"other"
    assert bytes(first) == b"First"


async def test_the_buffer_of_a_large_produce_frame_is_used_again() -> None:
    """The buffer is not used again before its use ends, nor while a view of it exists."""
    frames = [b"\0\0" + bytes([n]) * 20_000 for n in range(1, 5)]
    stream = ScriptedStream(framed(*frames))
    buffers = FrameBuffers()
    reader = FrameReader(stream, max_bytes=10**6, buffers=buffers)
    first = await reader.read()
    assert bytes(first or b"") == frames[0]
    del first
    reader.done()
    assert buffers.kept == 32_768
    second = await reader.read()
    assert second is not None
    assert (bytes(second), buffers.kept) == (frames[1], 0)
    records = memoryview(second)[2:100]
    del second
    reader.done()
    assert bytes(await reader.read() or b"") == frames[2]
    assert bytes(records) == frames[1][2:100]
    reader.done()
    assert bytes(await reader.read() or b"") == frames[3]


def test_no_more_buffers_are_kept_than_the_limit_says() -> None:
    """Memory stays bounded, whatever producers send."""
    buffers = FrameBuffers(limit=100_000)
    made = [bytearray(size) for size in (16_384, 32_768, 65_536, 99_000, 10**6)]
    assert buffers.take(16_384) is None
    for buffer in made:
        buffers.give_back(buffer)
    assert buffers.kept == 16_384 + 32_768
    assert buffers.take(17_000) is made[1]
    assert [buffers.keeps(size) for size in (16_383, 16_384, 65_536, 65_537)] == [False, True, True, False]


@pytest.mark.parametrize("buffers", [None, FrameBuffers()], ids=["plain", "pooled"])
async def test_announced_frame_occupies_memory_only_for_received_bytes(
    buffers: FrameBuffers | None,
) -> None:
    """A frame of 100 MB of which no byte has arrived uses 16 kB."""
    size = 5_000_000
    body = b"\0\0" + bytes(range(256)) * (size // 256) + bytes(size % 256 - 2)
    stream = ScriptedStream(size.to_bytes(4, "big") + body[:2], end=False)
    reader = FrameReader(stream, max_bytes=10**7, buffers=buffers)
    frames: list[bytes] = []

    async def read() -> None:
        frame = await reader.read()
        assert frame is not None
        frames.append(bytes(frame))
        del frame
        reader.done()

    tracemalloc.start()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            sent = 2
            for step in (2, 10_000, 100_000, 1_000_000):
                await trio.testing.wait_all_tasks_blocked()
                assert allocated_by_framing() < 100_000 + 5 * sent
                stream.feed(body[sent : sent + step])
                sent += step
            stream.feed(body[sent:])
    finally:
        tracemalloc.stop()
    assert frames == [body]
    if buffers is not None:
        assert buffers.kept == 8_388_608
