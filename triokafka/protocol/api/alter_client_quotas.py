"""AlterClientQuotas (API key 49): set and remove quotas of users and client ids (KIP-546).

Versions 0–1; flexible from 1.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Float64, Int16, String


class EntityData(Struct):
    """A part of the entity that quotas are set for."""

    entity_type: str = field(
        String,
        doc="The entity type: ``user``, ``client-id`` or ``ip``.",
        errors=("InvalidRequestError",),
    )
    entity_name: str | None = field(
        String,
        nullable="0+",
        doc="Its name; null for the default.",
        errors=("InvalidRequestError",),
    )


class OpData(Struct):
    """A change of one quota."""

    key: str = field(String, doc="Its name, such as ``producer_byte_rate``.", errors=("InvalidRequestError",))
    value: float = field(
        Float64,
        doc="The value to set; without meaning when it is removed.",
        errors=("InvalidRequestError",),
    )
    remove: bool = field(Boolean, doc="Whether the quota is removed instead of set.")


class EntryData(Struct):
    """An entity and the changes to its quotas."""

    entity: list[EntityData] = field(Array(EntityData), doc="The parts of the entity.")
    ops: list[OpData] = field(Array(OpData), doc="The changes.")


class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"], api_key=49, versions="0-1", flexible="1+"):
    """Change quotas."""

    entries: list[EntryData] = field(Array(EntryData), doc="The entities and changes.")
    validate_only: bool = field(Boolean, doc="Whether to validate only, without a change.")


class AlterClientQuotasEntity(Struct):
    """A part of an entity, from the request."""

    entity_type: str = field(String, doc="The entity type: ``user``, ``client-id`` or ``ip``.")
    entity_name: str | None = field(String, nullable="0+", doc="Its name; null for the default.")


class AlterClientQuotasResult(Struct):
    """The outcome for one entity."""

    error_code: int = field(
        Int16,
        doc="The error code of the change; 0 if it was made, or validated.",
        errors=("InvalidRequestError", "ClusterAuthorizationFailedError", "NotControllerError"),
    )
    error_message: str | None = field(String, nullable="0+", doc="The error message; null without an error.")
    entity: list[AlterClientQuotasEntity] = field(Array(AlterClientQuotasEntity), doc="The parts of the entity.")


class AlterClientQuotasResponse(Response, api_key=49, versions="0-1", flexible="1+"):
    """One result per entity."""

    throttle_time_ms: int = fields.throttle_time_ms()
    entries: list[AlterClientQuotasResult] = field(Array(AlterClientQuotasResult), doc="The results.")
