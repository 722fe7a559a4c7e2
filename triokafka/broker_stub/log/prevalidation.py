"""Checks of compressed batches before they are appended, in a worker thread where they may take long.

The sender of a batch decides how much is to be decompressed, and the topic whether it is compressed anew: up to seconds
of work for one request, during which the event loop would serve nobody else. The handover to a thread costs more than
to decompress a usual batch of a fast codec, so small batches are checked on the event loop, each up to a limit of
decompressed bytes, and one request for at most `_AT_ONCE_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import trio

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.validation import Prepared, needs_conversion, prepare
from triokafka.errors import BrokerResponseError, DecompressedSizeError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import CODEC_MASK, HEADER_SIZE
from triokafka.records.compression import CODEC_IDS
from triokafka.structs import Buffer, TopicPartition
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.request.handler_slots import Slot

_ATTRIBUTES: Final = 22  # the lower byte of a batch's attributes
_GZIP: Final = CODEC_IDS["gzip"]
_FAST: Final = 1 << 20, 5 << 18
"""Bytes of a batch that is checked on the event loop, and decompressed bytes after which a thread starts over: about a
millisecond of lz4, snappy or zstd, and enough for batches as producers fill them by default."""
_SLOW: Final = 32_768, 262_144
"""The same for gzip, and for batches that are compressed anew."""
_AT_ONCE_SECONDS: Final = 0.002
"""After so long, a thread checks the remaining batches of a request."""
USUAL_DECOMPRESSED: Final = 8 << 20
"""Batches that decompress to more are checked one after the other."""


class PrevalidatedBatch(NamedTuple):
    """A client's batch that was looked at: what may be appended, or why it may not.

    It holds for a log with this very ``config``; with another, ``data`` is to be looked at again.
    """

    data: Buffer
    config: LogConfig
    result: Prepared | BrokerResponseError


def needs_prevalidation(data: Buffer, config: LogConfig) -> bool:
    """Whether a client's batch is compressed, or will be."""
    if len(data) < HEADER_SIZE:
        return False
    codec = data[_ATTRIBUTES] & CODEC_MASK
    if config.compression_type == "producer":
        return codec != 0
    return codec != 0 or needs_conversion(codec, config)


class PrevalidationSlots:
    """Bounds how many requests' batches are decompressed at the same time, and so the memory that this takes.

    Args:
        threads: requests whose batches are of the usual size (``num.validation.threads``). One more thread serves the
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
    slot: Slot | None = None,
) -> dict[TopicPartition, PrevalidatedBatch]:
    """Check batches for which `needs_prevalidation` holds; waits for a thread where they may take long.

    A cancelled call waits for the thread first. The batches must not be changed meanwhile. The handler ``slot`` is free
    during the wait.
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
    """Check the batches; with ``most``, leave out those that decompress to more bytes."""
    found: dict[TopicPartition, PrevalidatedBatch] = {}
    for key, (data, config) in wanted.items():
        checked = _check(key, data, config, now_ms, most=most)
        if checked is not None:
            found[key] = checked
    return found


def _check(
    topic_partition: TopicPartition, data: Buffer, config: LogConfig, now_ms: int, *, most: int | None = None
) -> PrevalidatedBatch | None:
    """Check one batch; None when it decompresses to more than ``most`` bytes."""
    limit = {} if most is None else {"max_decompressed": most}
    try:
        return PrevalidatedBatch(
            data, config, prepare(data, topic_partition, config, now_ms=now_ms, from_client=True, **limit)
        )
    except BrokerResponseError as error:
        if most is not None and isinstance(error.__cause__, DecompressedSizeError):
            return None
        # Without the traceback and the cause, whose frames have the decompressed records.
        return PrevalidatedBatch(data, config, error.fresh_copy())
