"""Offsets as programs give them: numbers, pairs, or `OffsetAndMetadata`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triokafka import structs
from triokafka.structs import TopicPartition


def checked_offsets(offsets: Mapping[Any, Any]) -> dict[TopicPartition, structs.OffsetAndMetadata]:
    """Return offsets as the SDK takes them.

    Raises:
        ValueError: there are none, or one is neither a number nor a pair of number and text.
        TypeError: a key is not a `TopicPartition`, or the text is not a str.
    """
    if not offsets or not isinstance(offsets, dict):
        raise ValueError(offsets)
    found = {}
    for partition, given in offsets.items():
        if not isinstance(partition, TopicPartition):
            raise TypeError("Key should be TopicPartition instance")
        if isinstance(given, int):
            offset, metadata = given, ""
        else:
            try:
                offset, metadata = given
            except Exception as error:
                raise ValueError(offsets) from error
            if not isinstance(metadata, str):
                raise TypeError("Metadata should be a string")
        found[partition] = structs.OffsetAndMetadata(offset, metadata)
    return found
