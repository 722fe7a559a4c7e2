"""The version of an API: the newest that both ends support (KIP-35)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from triokafka.errors import UnsupportedVersionError
from triokafka.protocol.message import Request, Response

R = TypeVar("R", bound=Response)


def request_type_of(
    request: Request[R] | Callable[[int], Request[R]], api: type[Request[R]] | None
) -> type[Request[R]]:
    """Return the class of a request, which may be a function of the version; then ``api`` is the class."""
    if isinstance(request, Request):
        return type(request)
    if api is None:
        raise TypeError("a request given as a function needs api=, the class of the request")
    return api


def choose_version(
    request_type: type[Request[Any]],
    advertised: Mapping[int, tuple[int, int]],
    *,
    broker: str,
    min_version: int | None = None,
    max_version: int | None = None,
) -> int:
    """Return the newest version that the broker advertises, this package declares, and the caller allows.

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
        raise UnsupportedVersionError(f"{broker} does not support the API {name} (key {request_type.api_key})")
    version = min(high, theirs[1])
    if version < max(low, theirs[0]):
        raise UnsupportedVersionError(
            f"{broker} supports {name} in versions {theirs[0]} to {theirs[1]}, this call needs {low} to {high}"
        )
    return version


# Before these versions the broker delays its response while it throttles, and the client need not wait again.
_CLIENT_THROTTLES_FROM: Final = {
    0: 6,  # Produce
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    19: 3,  # CreateTopics
    20: 2,  # DeleteTopics
    21: 1,  # DeleteRecords
    22: 1,  # InitProducerId
    24: 1,  # AddPartitionsToTxn
    25: 1,  # AddOffsetsToTxn
    26: 1,  # EndTxn
    28: 1,  # TxnOffsetCommit
    29: 1,  # DescribeAcls
    30: 1,  # CreateAcls
    31: 1,  # DeleteAcls
    32: 2,  # DescribeConfigs
    33: 1,  # AlterConfigs
    34: 1,  # AlterReplicaLogDirs
    35: 1,  # DescribeLogDirs
    37: 1,  # CreatePartitions
    38: 1,  # CreateDelegationToken
    39: 1,  # RenewDelegationToken
    40: 1,  # ExpireDelegationToken
    41: 1,  # DescribeDelegationToken
    42: 1,  # DeleteGroups
}


def client_throttles(api_key: int, version: int) -> bool:
    """Return whether a throttle time in this response makes the client wait before its next request (KIP-219)."""
    return version >= _CLIENT_THROTTLES_FROM.get(api_key, 0)
