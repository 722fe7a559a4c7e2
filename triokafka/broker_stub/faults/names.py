"""Lookup of APIs and errors by Kafka's name, this package's name, or number."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from triokafka import errors
from triokafka.errors import BrokerResponseError
from triokafka.protocol.api import API_NAMES


class UnknownNameError(errors.ConfigurationError):
    """Unknown name of an API, an error or a fault; the message suggests the nearest known one."""


def api_key(api: int | str) -> int:
    """Return the key of an API, given its name in any case (``Produce``) or its key.

    Raises:
        UnknownNameError: no API has that name.
    """
    if isinstance(api, int) and not isinstance(api, bool):
        return api
    key = _API_KEYS.get(str(api).lower().replace("_", "").removesuffix("request"))
    if key is None:
        raise UnknownNameError(f"there is no API {api!r}{nearest(str(api), API_NAMES.values())}")
    return key


def error_class(error: int | str | type[BrokerResponseError]) -> type[BrokerResponseError]:
    """Return the class of an error, given its code, Kafka's name (``NOT_LEADER_OR_FOLLOWER``) or the class name.

    Raises:
        UnknownNameError: no error has that code or name.
    """
    if isinstance(error, type) and error in _CLASSES:
        return error
    if isinstance(error, int) and not isinstance(error, bool):
        known = errors.ERRORS.get(error)
        if known is None:
            raise UnknownNameError(f"there is no error with the code {error}")
        return known
    found = getattr(errors, str(error), None) or _BY_KAFKAS_NAME.get(str(error).upper())
    if found not in _CLASSES:
        names = (*_BY_KAFKAS_NAME, *(cls.__name__ for cls in errors.ERRORS.values()))
        raise UnknownNameError(f"there is no error {error!r}{nearest(str(error), names)}")
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the most similar known name for an error message; empty if no name is similar."""
    by_form = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_form, 1)
    return f"; did you mean {by_form[near[0]]!r}?" if near else ""


def _kafkas_name(cls: type[BrokerResponseError]) -> str:
    words = re.findall(r"[A-Z][a-z]+|[A-Z]+(?![a-z])", cls.__name__.removesuffix("Error"))
    return "_".join(word.upper() for word in words)


_CLASSES: Final = frozenset(errors.ERRORS.values())
_API_KEYS: Final = {name.lower(): key for key, name in API_NAMES.items()}
_BY_KAFKAS_NAME: Final = {
    **{_kafkas_name(cls): cls for cls in errors.ERRORS.values()},
    # Errors whose class names, which follow kafka-python, differ from Kafka's names.
    "NOT_LEADER_OR_FOLLOWER": errors.NotLeaderForPartitionError,
    "CORRUPT_MESSAGE": errors.CorruptRecordError,
    "FETCH_SESSION_TOPIC_ID_ERROR": errors.FetchSessionTopicIdError,
    "INVALID_CONFIG": errors.InvalidConfigurationError,
    "INVALID_FETCH_SIZE": errors.InvalidFetchRequestError,
    "INVALID_REPLICA_ASSIGNMENT": errors.InvalidReplicationAssignmentError,
    "KAFKA_STORAGE_ERROR": errors.KafkaStorageError,
    "MESSAGE_TOO_LARGE": errors.MessageSizeTooLargeError,
    "INVALID_TOPIC_EXCEPTION": errors.InvalidTopicError,
    "UNKNOWN_SERVER_ERROR": errors.UnknownError,
}
