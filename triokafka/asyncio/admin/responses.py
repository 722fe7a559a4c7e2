"""Results of `AIOKafkaAdminClient` where aiokafka returns responses of the protocol: the same fields as tuples.

``to_object`` returns the fields as dictionaries with the protocol's names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_MEMBER = ("member_id", "client_id", "client_host", "member_metadata", "member_assignment")
_SYNONYM = ("config_name", "config_value", "config_source")
_ENTRY = ("config_names", "config_value", "read_only", "config_source", "is_sensitive", "config_synonyms")


def _named(names: Sequence[str], rows: Iterable[Sequence[Any]], /, **within: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows as dictionaries; ``within`` has the names of rows that are a field's value."""
    return [
        {
            name: _named(within[name], value) if name in within else value
            for name, value in zip(names, row, strict=False)
        }
        for row in rows
    ]


class TopicErrors(NamedTuple):
    """The outcome for each topic: (name, error code, message); of a deletion (name, error code)."""

    topic_errors: list[tuple[Any, ...]]
    throttle_time_ms: int = 0

    def to_object(self) -> dict[str, Any]:
        """Return the response as a dictionary."""
        return {
            "throttle_time_ms": self.throttle_time_ms,
            "topic_errors": _named(("topic", "error_code", "error_message"), self.topic_errors),
        }


class DeletedTopics(NamedTuple):
    """The outcome for each topic: (name, error code)."""

    topic_error_codes: list[tuple[str, int]]
    throttle_time_ms: int = 0

    def to_object(self) -> dict[str, Any]:
        """Return the response as a dictionary."""
        return {
            "throttle_time_ms": self.throttle_time_ms,
            "topic_error_codes": _named(("topic", "error_code"), self.topic_error_codes),
        }


class DescribedConfigs(NamedTuple):
    """Configuration: (error code, message, type, name, entries).

    An entry is (name, value, read only, source, sensitive, synonyms).
    """

    resources: list[tuple[Any, ...]]
    throttle_time_ms: int = 0

    def to_object(self) -> dict[str, Any]:
        """Return the response as a dictionary."""
        names = ("error_code", "error_message", "resource_type", "resource_name", "config_entries")
        resources = _named(names, self.resources)
        for resource in resources:
            resource["config_entries"] = _named(_ENTRY, resource["config_entries"], config_synonyms=_SYNONYM)
        return {"throttle_time_ms": self.throttle_time_ms, "resources": resources}


class AlteredConfigs(NamedTuple):
    """The outcome for each resource: (error code, message, type, name)."""

    resources: list[tuple[Any, ...]]
    throttle_time_ms: int = 0

    def to_object(self) -> dict[str, Any]:
        """Return the response as a dictionary."""
        return {
            "throttle_time_ms": self.throttle_time_ms,
            "resources": _named(("error_code", "error_message", "resource_type", "resource_name"), self.resources),
        }


class DescribedGroups(NamedTuple):
    """Groups: (error code, name, state, protocol type, protocol, members).

    A member is (member id, client id, host, metadata, assignment).
    """

    groups: list[tuple[Any, ...]]
    throttle_time_ms: int = 0

    def to_object(self) -> dict[str, Any]:
        """Return the response as a dictionary."""
        names = ("error_code", "group", "state", "protocol_type", "protocol", "members")
        return {"throttle_time_ms": self.throttle_time_ms, "groups": _named(names, self.groups, members=_MEMBER)}
