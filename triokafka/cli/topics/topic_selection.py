"""The selection of topics in topic commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from triokafka.structs import parse_uuid

if TYPE_CHECKING:
    from uuid import UUID

    from triokafka import AdminClient
    from triokafka.client.admin import ConfigEntry, TopicListing


async def listings(admin: AdminClient, pattern: str | None, *, exclude_internal: bool = False) -> list[TopicListing]:
    """Return topics sorted by name: all, or those that equal or fully match a part of the pattern."""
    found = sorted(await admin.list_topics(include_internal=not exclude_internal), key=lambda one: one.name)
    if pattern is None:
        return found
    parts = [part for part in pattern.split(",") if part]
    literal = {listing.name for listing in found} & set(parts)
    try:
        patterns = [re.compile(part) for part in parts if part not in literal]
    except re.error as error:
        raise click.UsageError(f"{pattern!r} is not a regular expression: {error}.") from None
    return [
        listing for listing in found if listing.name in literal or any(one.fullmatch(listing.name) for one in patterns)
    ]


class ChosenTopics(NamedTuple):
    """Topics selected by TOPICS (names and patterns) or ``--topic-id``; all topics without either."""

    topics: str | None
    topic_id: str | None
    wanted_id: UUID | None

    @classmethod
    def of(cls, topics: str | None, topic_id: str | None) -> ChosenTopics:
        """Combine argument and option. Raises `click.UsageError` for an invalid id."""
        return cls(topics, topic_id, None if topic_id is None else _parse_id(topic_id))

    async def resolve(
        self, admin: AdminClient, *, if_exists: bool, exclude_internal: bool = False
    ) -> list[TopicListing]:
        """Return the topics. Raises `UnknownTopicOrPartitionError` for none, except for ``if_exists`` or all topics."""
        found = await listings(admin, self.topics, exclude_internal=exclude_internal)
        if self.wanted_id is not None:
            found = [listing for listing in found if listing.topic_id == self.wanted_id]
        if not found and (self.topics, self.topic_id) != (None, None) and not if_exists:
            raise nothing(self.topics or self.topic_id or "")
        return found


async def configs_of(admin: AdminClient, names: Iterable[str]) -> dict[str, Mapping[str, ConfigEntry]]:
    """Return the configurations of topics by name."""
    from triokafka.client.admin import ConfigResource

    resources = {ConfigResource.topic(name): name for name in names}
    described = await admin.describe_configs(resources)
    return {name: described[resource] for resource, name in resources.items()}


def _parse_id(text: str) -> UUID:
    """Parse ``--topic-id``, in the form of Kafka's tools or in hexadecimal. Raises `click.UsageError`."""
    from uuid import UUID

    try:
        return parse_uuid(text) if len(text) == 22 else UUID(text)
    except ValueError:
        raise click.UsageError(f"--topic-id: {text!r} is not a topic id.") from None


def nothing(pattern: str) -> Exception:
    """Return the error for a name or pattern that matches no topic."""
    from triokafka.errors import UnknownTopicOrPartitionError

    return UnknownTopicOrPartitionError(f"no topic matches {pattern!r}")
