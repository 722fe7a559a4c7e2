"""DescribeClientQuotas (API key 48): which quotas are set for users and client ids (KIP-546).

Versions 0–1; flexible from 1.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Float64, Int8, Int16, String


class ComponentData(Struct):
    """One condition that an entity must fulfil."""

    entity_type: str = field(
        String,
        doc="The entity type of the condition: ``user``, ``client-id`` or ``ip``.",
        errors=("InvalidRequestError", "UnsupportedVersionError"),
    )
    match_type: int = field(
        Int8,
        doc="The match type: 0 the given name, 1 the default entity, 2 any name or the default.",
        errors=("InvalidRequestError",),
    )
    match: str | None = field(
        String,
        nullable="0+",
        doc="The name; null unless the match is by name.",
        errors=("InvalidRequestError",),
    )


class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"], api_key=48, versions="0-1", flexible="1+"):
    """Ask for the quotas of all entities that fulfil every condition."""

    components: list[ComponentData] = field(Array(ComponentData), doc="The conditions.")
    strict: bool = field(Boolean, doc="Whether to exclude entities that have other parts than those of the conditions.")


class EntityData(Struct):
    """A part of the entity that quotas are set for."""

    entity_type: str = field(String, doc="The entity type: ``user``, ``client-id`` or ``ip``.")
    entity_name: str | None = field(String, nullable="0+", doc="Its name; null for the default.")


class ValueData(Struct):
    """One quota."""

    key: str = field(String, doc="Its name, such as ``producer_byte_rate``.")
    value: float = field(Float64, doc="Its value, in bytes a second or percent.")


class EntryData(Struct):
    """The quotas of one entity."""

    entity: list[EntityData] = field(Array(EntityData), doc="The parts of the entity.")
    values: list[ValueData] = field(Array(ValueData), doc="Its quotas.")


class DescribeClientQuotasResponse(Response, api_key=48, versions="0-1", flexible="1+"):
    """The quotas that were found."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code of the request; 0 for success.",
        errors=("InvalidRequestError", "UnsupportedVersionError", "ClusterAuthorizationFailedError"),
    )
    error_message: str | None = field(String, nullable="0+", doc="The error message; empty without an error.")
    entries: list[EntryData] | None = field(
        Array(EntryData),
        nullable="0+",
        doc="The entities with their quotas; null on an error.",
    )
