"""Quotas of users, client ids and addresses: describe, alter (KIP-546)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.retries import AdminRetries
from triokafka.protocol.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from triokafka.protocol.api.describe_client_quotas import ComponentData, DescribeClientQuotasRequest


class QuotaMatch(enum.Enum):
    """A match of quota entities that names none of them."""

    DEFAULT = 1
    """The default quota."""
    ANY = 2
    """A name or the default."""


_BY_NAME: Final = 0
_TYPES: Final = {"user": "user", "client_id": "client-id", "client-id": "client-id", "ip": "ip"}


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The entity of a quota: pairs of a type (``user``, ``client-id``, ``ip``) and a name, None for the default."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, **parts: str | None) -> QuotaEntity:
        """``QuotaEntity.of(user="alice", client_id=None)``: alice with any client id without its own quota.

        Raises:
            ValueError: a part is none of ``user``, ``client_id`` and ``ip``.
        """
        return cls(tuple(sorted((_type(kind), name) for kind, name in parts.items())))


class QuotaAdmin:
    """The part of `AdminClient` about quotas."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def describe_client_quotas(
        self,
        parts: Mapping[str, str | QuotaMatch] | None = None,
        *,
        strict: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return quotas by entity (brokers from 2.6 on): all, or those of entities that match ``parts``.

        ``{"user": "alice"}`` matches alice, also with a client id; ``strict`` excludes entities that have other parts
        as well. ``{"user": "alice", "client_id": QuotaMatch.ANY}`` matches alice with a client id only.

        Raises:
            ClusterAuthorizationFailedError, InvalidRequestError: the broker refused.
        """
        components = [_component(kind, wanted) for kind, wanted in (parts or {}).items()]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        response = await self._retries.ask_any(request, "quotas", timeout_ms)
        return {
            QuotaEntity(tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity))): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Set quotas by name (``producer_byte_rate``, …); None removes a quota. Other quotas stay.

        Raises:
            InvalidRequestError, ClusterAuthorizationFailedError, …: one entity could not be changed; an
                `ExceptionGroup` when several could not.
        """

        async def do_round(items: list[QuotaEntity], call: CallRouting) -> Mapping[QuotaEntity, Exception | None]:
            request = AlterClientQuotasRequest(
                entries=[
                    EntryData(
                        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
                        ops=[
                            OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                            for key, value in changes[entity].items()
                        ],
                    )
                    for entity in items
                ],
                validate_only=validate_only,
            )
            response = await call.to_controller(request)
            outcomes: dict[QuotaEntity, Exception | None] = {}
            for entry in response.entries:
                entity = QuotaEntity(tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)))
                outcomes[entity] = self._retries.error(entry.error_code, _text(entity), entry.error_message)
            return outcomes

        await self._retries.change(_sorted(changes), do_round, timeout_ms)


def _sorted(entities: Iterable[QuotaEntity]) -> list[QuotaEntity]:
    for entity in entities:
        if tuple(sorted(entity.parts)) != entity.parts:
            raise ValueError(f"the parts of {entity} are not in order; create it with QuotaEntity.of")
    return list(entities)


def _type(kind: str) -> str:
    if kind not in _TYPES:
        raise ValueError(f"{kind!r} is not a part of an entity: use {', '.join(('user', 'client_id', 'ip'))}")
    return _TYPES[kind]


def _component(kind: str, wanted: str | QuotaMatch) -> ComponentData:
    if isinstance(wanted, QuotaMatch):
        return ComponentData(entity_type=_type(kind), match_type=wanted.value, match=None)
    return ComponentData(entity_type=_type(kind), match_type=_BY_NAME, match=wanted)


def _text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else repr(name)}" for kind, name in entity.parts)
