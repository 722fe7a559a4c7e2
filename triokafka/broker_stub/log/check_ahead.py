"""Checking compressed batches before they are appended, away from the event loop where that may take long.

Whoever sends a batch decides how much is to be decompressed, and the topic whether it is compressed anew: up to seconds
of work for one request, during which nobody else would be served. Batches that are little work are checked at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.validation import Prepared, needs_conversion, prepare
from triokafka.errors import BrokerResponseError, InvalidRecordError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import CODEC_MASK, HEADER_SIZE
from triokafka.structs import Buffer, TopicPartition
from triokafka.world import World

_ATTRIBUTES: Final = 22  # the lower byte of a batch's attributes
_LITTLE: Final = 32_768
"""Bytes of compressed batches of one request that are looked into at once, ..."""
_LITTLE_DECOMPRESSED: Final = 8 * _LITTLE
"""... if no batch has more than this in it."""


class Checked(NamedTuple):
    """A client's batch that was looked at: what may be appended, or why it may not.

    It holds for a log with this very ``config``; with another, ``data`` is to be looked at again.
    """

    data: Buffer
    config: LogConfig
    result: Prepared | BrokerResponseError


def is_work(data: Buffer, config: LogConfig) -> bool:
    """Whether a client's batch is compressed, or will be."""
    if len(data) < HEADER_SIZE:
        return False
    codec = data[_ATTRIBUTES] & CODEC_MASK
    if config.compression_type == "producer":
        return codec != 0
    return codec != 0 or needs_conversion(codec, config)


async def check_ahead(
    world: World, wanted: Mapping[TopicPartition, tuple[Buffer, LogConfig]]
) -> dict[TopicPartition, Checked]:
    """Look at batches for which `is_work` holds; waits where they are more than a little work.

    Cancelled, it waits for the thread first. The batches must not be changed meanwhile.
    """
    now_ms = world.wall_ms()
    found: dict[TopicPartition, Checked] = {}
    left = dict(wanted)
    if sum(len(data) for data, _ in wanted.values()) <= _LITTLE:
        for key, (data, config) in wanted.items():
            checked = _check(key, data, config, now_ms, most=_LITTLE_DECOMPRESSED)
            # What is refused may just have been too much; a client that sends what is wrong can wait for the thread.
            if not isinstance(checked.result, InvalidRecordError):
                found[key] = checked
                del left[key]
    if left:
        found.update(await world.run_in_thread(_check_all, left, now_ms))
    return found


def _check_all(wanted: Mapping[TopicPartition, tuple[Buffer, LogConfig]], now_ms: int) -> dict[TopicPartition, Checked]:
    return {key: _check(key, data, config, now_ms) for key, (data, config) in wanted.items()}


def _check(
    topic_partition: TopicPartition, data: Buffer, config: LogConfig, now_ms: int, *, most: int | None = None
) -> Checked:
    limit = {} if most is None else {"max_decompressed": most}
    try:
        return Checked(data, config, prepare(data, topic_partition, config, now_ms=now_ms, from_client=True, **limit))
    except BrokerResponseError as error:
        # Without the traceback and the cause, whose frames have the decompressed records.
        return Checked(data, config, error.fresh_copy())
