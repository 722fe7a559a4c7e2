"""What the commands about topics share: which topics are meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from triokafka.structs import parse_uuid

if TYPE_CHECKING:
    from uuid import UUID

    from triokafka import AdminClient
    from triokafka.client.admin import TopicListing


async def listings(admin: AdminClient, pattern: str | None, *, exclude_internal: bool = False) -> list[TopicListing]:
    """Topics by name; of a pattern, those that any of its parts names or matches as a whole."""
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


def parse_id(text: str) -> UUID:
    """The id in ``--topic-id``, as Kafka's tools write it or in hexadecimal. Wrong use raises `click.UsageError`."""
    from uuid import UUID

    try:
        return parse_uuid(text) if len(text) == 22 else UUID(text)
    except ValueError:
        raise click.UsageError(f"--topic-id: {text!r} is not a topic's id.") from None


def nothing(pattern: str) -> Exception:
    """The error of a name or pattern that no topic has."""
    from triokafka.errors import UnknownTopicOrPartitionError

    return UnknownTopicOrPartitionError(f"no topic is or matches {pattern!r}")
