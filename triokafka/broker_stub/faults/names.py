"""APIs and errors as tests name them: by Kafka's name, by this package's, or by number."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from triokafka import errors
from triokafka.errors import BrokerResponseError
from triokafka.protocol.api import API_NAMES


class UnknownNameError(errors.ConfigurationError):
    """There is no API, error or fault of that name; the message has the nearest known one."""


def api_key(api: int | str) -> int:
    """The key of an API that is called by its name, in upper or lower case (``Produce``), or by its key.

    Raises:
        UnknownNameError: there is no API of that name.
    """
    if isinstance(api, int) and not isinstance(api, bool):
        return api
    key = _API_KEYS.get(str(api).lower().replace("_", "").removesuffix("request"))
    if key is None:
        raise UnknownNameError(f"there is no API {api!r}{nearest(str(api), API_NAMES.values())}")
    return key


def error_class(error: int | str | type[BrokerResponseError]) -> type[BrokerResponseError]:
    """The class of an error that is called by its code, by Kafka's name (``NOT_LEADER_OR_FOLLOWER``) or by ours.

    Raises:
        UnknownNameError: there is no such error.
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
    """The end of a sentence that says what may have been meant; empty when nothing is like it."""
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
    # Where kafka-python's names, which ours are, say it differently.
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
