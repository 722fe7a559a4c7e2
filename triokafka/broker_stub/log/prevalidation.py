"""Validation of compressed batches before they are appended, in a worker thread if it may take long.

The producer determines how much data must be decompressed, and the topic may require recompression. One request may
take seconds, which would block the event loop. But handing a batch to a thread costs more than decompressing a typical
batch of a fast codec. So the event loop validates small batches itself, each up to a limit of decompressed bytes, and
for at most `_AT_ONCE_SECONDS` per request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import trio

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.validation import Prepared, needs_conversion, prepare
from triokafka.errors import BrokerResponseError, DecompressedSizeError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import CODEC_MASK, HEADER_SIZE
from triokafka.records.compression import CODEC_IDS
from triokafka.structs import Buffer, TopicPartition
from triokafka.world import World

_ATTRIBUTES: Final = 22  # the lower byte of a batch's attributes
_GZIP: Final = CODEC_IDS["gzip"]
_FAST: Final = 1 << 20, 5 << 18
"""The largest batch that the event loop validates, and the decompressed bytes after which a thread starts over. The
limits allow about a millisecond of lz4, snappy or zstd, and batches of the producers' default size.
"""
_SLOW: Final = 32_768, 262_144
"""The same limits for gzip, and for batches that are recompressed."""
_AT_ONCE_SECONDS: Final = 0.002
"""The time per request on the event loop; after it, a thread validates the remaining batches."""
USUAL_DECOMPRESSED: Final = 8 << 20
"""Batches that decompress to more are validated one at a time."""


class HandlerSlot(Protocol):
    """The slot of the request that waits."""

    def release(self) -> None:
        """Let another request run."""
        ...

    async def resume(self) -> None:
        """Wait for a slot again."""
        ...


class PrevalidatedBatch(NamedTuple):
    """The result of prevalidating a client's batch: the data to append, or the error.

    The result is valid only while the log has this ``config`` object; otherwise, ``data`` must be validated again.
    """

    data: Buffer
    config: LogConfig
    result: Prepared | BrokerResponseError


def needs_prevalidation(data: Buffer, config: LogConfig) -> bool:
    """Whether a client's batch is compressed, or must be compressed for the topic."""
    if len(data) < HEADER_SIZE:
        return False
    codec = data[_ATTRIBUTES] & CODEC_MASK
    if config.compression_type == "producer":
        return codec != 0
    return codec != 0 or needs_conversion(codec, config)


class PrevalidationSlots:
    """Limits the number of requests whose batches are decompressed in parallel, and thereby the memory for it.

    Args:
        threads: parallel requests with batches of the usual size (``num.validation.threads``). One more thread handles
            batches that decompress to more than `USUAL_DECOMPRESSED`, one request at a time.
    """

    def __init__(self, threads: int = 2) -> None:
        self.usual = trio.Semaphore(threads)
        self.large = trio.Semaphore(1)


async def prevalidate(
    world: World,
    wanted: Mapping[TopicPartition, tuple[Buffer, LogConfig]],
    *,
    lanes: PrevalidationSlots | None = None,
    slot: HandlerSlot | None = None,
) -> dict[TopicPartition, PrevalidatedBatch]:
    """Validate batches for which `needs_prevalidation` is true; wait for a thread if that may take long.

    If cancelled, the call first waits for the thread. The caller must not change the batches meanwhile. The handler
    ``slot`` is released during the wait.
    """
    now_ms = world.wall_ms()
    found: dict[TopicPartition, PrevalidatedBatch] = {}
    left = dict(wanted)
    until = world.now() + _AT_ONCE_SECONDS
    for key, (data, config) in wanted.items():
        largest, most = _limits(data, config)
        if len(data) <= largest:
            checked = _check(key, data, config, now_ms, most=most)
            if checked is not None:
                found[key] = checked
                del left[key]
        if world.now() > until:
            break
    if left:
        lanes = PrevalidationSlots() if lanes is None else lanes
        if slot is not None:
            slot.release()
        async with lanes.usual:
            usual = await world.run_in_thread(_check_all, left, now_ms, USUAL_DECOMPRESSED)
        found.update(usual)
        for key in usual:
            del left[key]
        if left:
            async with lanes.large:
                found.update(await world.run_in_thread(_check_all, left, now_ms))
                await world.run_in_thread(world.release_free_memory)
        if slot is not None:
            await slot.resume()
    return found


def _limits(data: Buffer, config: LogConfig) -> tuple[int, int]:
    codec = data[_ATTRIBUTES] & CODEC_MASK
    return _SLOW if codec == _GZIP or needs_conversion(codec, config) else _FAST


def _check_all(
    wanted: Mapping[TopicPartition, tuple[Buffer, LogConfig]], now_ms: int, most: int | None = None
) -> dict[TopicPartition, PrevalidatedBatch]:
    """Validate the batches; with ``most``, skip batches that decompress to more bytes."""
    found: dict[TopicPartition, PrevalidatedBatch] = {}
    for key, (data, config) in wanted.items():
        checked = _check(key, data, config, now_ms, most=most)
        if checked is not None:
            found[key] = checked
    return found


def _check(
    topic_partition: TopicPartition, data: Buffer, config: LogConfig, now_ms: int, *, most: int | None = None
) -> PrevalidatedBatch | None:
    """Validate one batch; return None when it decompresses to more than ``most`` bytes."""
    limit = {} if most is None else {"max_decompressed": most}
    try:
        return PrevalidatedBatch(
            data, config, prepare(data, topic_partition, config, now_ms=now_ms, from_client=True, **limit)
        )
    except BrokerResponseError as error:
        if most is not None and isinstance(error.__cause__, DecompressedSizeError):
            return None
        # Without the traceback and the cause, whose frames refer to the decompressed records.
        return PrevalidatedBatch(data, config, error.fresh_copy())
