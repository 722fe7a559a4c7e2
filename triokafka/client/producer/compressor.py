"""Where a producer compresses its batches: in the thread for lz4, in worker threads, or in the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.lz4_compressor import Lz4Compressor, can_serve
from triokafka.client.producer.partition_queue import Compressor
from triokafka.client.producer.thread_compressor import FAST_LZ4, ThreadCompressor
from triokafka.world import World


def compressor_for(
    codec: str,
    level: int | None,
    *,
    world: World,
    start_task: Callable[[Callable[[], Awaitable[None]]], None],
    on_done: Callable[[ProducerBatch, Exception | None], None],
    wake: Callable[[], None],
) -> Compressor:
    """Return the compressor for a codec in this world.

    ``on_done`` gets each batch that a thread is done with; then ``wake`` wakes the sender.
    """
    if codec == "lz4" and level in (None, FAST_LZ4) and can_serve(world):
        return Lz4Compressor(world=world, start_task=start_task, on_done=on_done, wake=wake)

    def done(batch: ProducerBatch, error: Exception | None) -> None:
        on_done(batch, error)
        wake()

    return ThreadCompressor(codec, level, world=world, start_task=start_task, on_done=done)
