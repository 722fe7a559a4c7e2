"""What `AIOKafkaAdminClient` returns where aiokafka returns responses of the protocol: the same fields as tuples."""

from __future__ import annotations

from typing import Any, NamedTuple


class TopicErrors(NamedTuple):
    """The outcome for each topic: (name, error code, message); of a deletion (name, error code)."""

    topic_errors: list[tuple[Any, ...]]
    throttle_time_ms: int = 0


class DeletedTopics(NamedTuple):
    """The outcome for each topic: (name, error code)."""

    topic_error_codes: list[tuple[str, int]]
    throttle_time_ms: int = 0


class DescribedConfigs(NamedTuple):
    """Configuration: (error code, message, type, name, entries).

    An entry is (name, value, read only, source, sensitive, synonyms).
    """

    resources: list[tuple[Any, ...]]
    throttle_time_ms: int = 0


class AlteredConfigs(NamedTuple):
    """The outcome for each resource: (error code, message, type, name)."""

    resources: list[tuple[Any, ...]]
    throttle_time_ms: int = 0


class DescribedGroups(NamedTuple):
    """Groups: (error code, name, state, protocol type, protocol, members).

    A member is (member id, client id, host, metadata, assignment).
    """

    groups: list[tuple[Any, ...]]
    throttle_time_ms: int = 0
