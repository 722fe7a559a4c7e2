"""Which version of an API to speak: the newest that both ends know (KIP-35)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triokafka.errors import UnsupportedVersionError
from triokafka.protocol.message import Request


def choose_version(
    request_type: type[Request[Any]],
    advertised: Mapping[int, tuple[int, int]],
    *,
    broker: str,
    min_version: int | None = None,
    max_version: int | None = None,
) -> int:
    """The newest version within what the broker advertised, what we declare, and the caller's bounds.

    Raises:
        UnsupportedVersionError: there is none; the message names both ranges.
    """
    name = request_type.__name__.removesuffix("Request")
    ours = request_type.versions
    low, high = ours.min, ours.max
    if min_version is not None:
        low = max(low, min_version)
    if max_version is not None:
        high = min(high, max_version)
    theirs = advertised.get(request_type.api_key)
    if theirs is None:
        raise UnsupportedVersionError(f"{broker} does not know the API {name} (key {request_type.api_key})")
    version = min(high, theirs[1])
    if version < max(low, theirs[0]):
        raise UnsupportedVersionError(
            f"{broker} speaks {name} in versions {theirs[0]} to {theirs[1]}, this call needs {low} to {high}"
        )
    return version
