"""Which client quota applies to a client: the eight levels of Kafka's precedence (KIP-55).

The broker enforces the quota of the first level that has one; ``triokafka quotas resolve`` prints it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from triokafka.named_tuple import NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

EntityParts: TypeAlias = tuple[tuple[str, str | None], ...]
"""The entity of a quota: pairs of type and name, sorted by type; the name is None for the type's default."""


class QuotaLevel(NamedTuple):
    """One level of the precedence for a client.

    ``shared_by`` is the user and the client id of the clients that share the quota; an empty text stands for any. The
    default quota of all users is therefore the quota of each user.
    """

    entity: EntityParts
    shared_by: tuple[str, str]


def quota_levels(user: str, client_id: str) -> Iterator[QuotaLevel]:
    """Yield the levels for a client, the most specific first; without a client id only the levels of its user."""
    for user_name in (user, None):
        if client_id:
            for client_name in (client_id, None):
                yield QuotaLevel(((CLIENT_ID, client_name), (USER, user_name)), (user, client_id))
        yield QuotaLevel(((USER, user_name),), (user, ""))
    if client_id:
        for client_name in (client_id, None):
            yield QuotaLevel(((CLIENT_ID, client_name),), ("", client_id))


def address_levels(address: str) -> Iterator[EntityParts]:
    """Yield the entities whose ``connection_creation_rate`` may apply to an IP address, the most specific first."""
    yield ((IP, address),)
    yield ((IP, None),)


def effective_quota(
    quotas: Mapping[EntityParts, Mapping[str, float]], name: str, user: str, client_id: str
) -> tuple[float, QuotaLevel] | None:
    """Return the value of the quota ``name`` for a client and the level that it is from, or None without a quota."""
    for level in quota_levels(user, client_id):
        value = quotas.get(level.entity, {}).get(name)
        if value is not None:
            return value, level
    return None
