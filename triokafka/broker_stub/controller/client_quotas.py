"""Changes of client quotas: users, client ids and IP addresses (KIP-13, KIP-124, KIP-546). Brokers enforce them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.controller.outcome import Outcome, Steps, check_size
from triokafka.broker_stub.metadata.image import MetadataImage, QuotaEntity
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.errors import BrokerResponseError, InvalidRequestError
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import ClientQuotaEntityData, ClientQuotaRecord
from triokafka.quota_precedence import CLIENT_ID, IP, USER

if TYPE_CHECKING:
    from triokafka.protocol.api.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        AlterClientQuotasResult,
    )
    from triokafka.protocol.api.alter_client_quotas import EntityData as AlteredPart

# Whether the value is a whole number, and its limit.
_USER_KEYS: Final[Mapping[str, tuple[bool, float]]] = {
    "producer_byte_rate": (True, 2.0**63),
    "consumer_byte_rate": (True, 2.0**63),
    "request_percentage": (False, float("inf")),
    "controller_mutation_rate": (False, float("inf")),
}
_IP_KEYS: Final[Mapping[str, tuple[bool, float]]] = {"connection_creation_rate": (True, 2.0**31 - 1)}


def alter_client_quotas(image: MetadataImage, request: AlterClientQuotasRequest) -> Steps[AlterClientQuotasResponse]:
    """Set and remove quotas, with one result per entity; each succeeds or fails independently.

    Raises:
        PolicyViolationError: the request needs too many records.
    """
    from triokafka.protocol.api.alter_client_quotas import (
        AlterClientQuotasEntity,
        AlterClientQuotasResponse,
        AlterClientQuotasResult,
    )

    records: list[Struct] = []
    results: list[AlterClientQuotasResult] = []
    seen: set[QuotaEntity] = set()
    for entry in request.entries:
        failure = ItemError()
        try:
            entity = _entity(entry.entity)
            if entity in seen:
                raise InvalidRequestError(f"Ignoring duplicate entity {dict(entity)}")
            seen.add(entity)
            changes: dict[str, float | None] = {}
            for op in entry.ops:
                if op.key in changes:
                    raise InvalidRequestError(f"Duplicate quota key {op.key}")
                changes[op.key] = None if op.remove else op.value
            records += _records(image, entity, changes)
        except BrokerResponseError as error:
            failure = ItemError.of(error)
        parts = [AlterClientQuotasEntity(entity_type=p.entity_type, entity_name=p.entity_name) for p in entry.entity]
        results.append(AlterClientQuotasResult(error_code=failure.code, error_message=failure.message, entity=parts))
        check_size(records)
        yield 1
    return Outcome([] if request.validate_only else records, AlterClientQuotasResponse(entries=results))


def _entity(parts: Sequence[AlteredPart]) -> QuotaEntity:
    named: dict[str, str | None] = {}
    for part in parts:
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_type in named:
            raise InvalidRequestError(f"Invalid client quota entity, duplicate entity entry {part.entity_type}")
        if part.entity_name == "":
            raise InvalidRequestError(f"Empty {part.entity_type} not supported")
        named[part.entity_type] = part.entity_name
    if not named:
        raise InvalidRequestError("Invalid empty client quota entity")
    if IP in named and len(named) > 1:
        raise InvalidRequestError("An IP address cannot be combined with a user or client id")
    address = named.get(IP)
    if address is not None and not _is_address(address):
        # Brokers compare addresses and resolve no names, so a quota of a host name would never apply.
        raise InvalidRequestError(f"{address} is not a valid IP address.")
    return tuple(sorted(named.items()))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _records(image: MetadataImage, entity: QuotaEntity, changes: Mapping[str, float | None]) -> list[Struct]:
    known = _IP_KEYS if entity[0][0] == IP else _USER_KEYS
    now = image.client_quotas.get(entity, {})
    found: list[Struct] = []
    for key, value in changes.items():
        if value is not None:
            _check_value(known, key, value)
        if value == now.get(key):
            continue  # no change, so no record
        parts = [ClientQuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        found.append(
            ClientQuotaRecord(entity=parts, key=key, remove=True)
            if value is None
            else ClientQuotaRecord(entity=parts, key=key, value=value)
        )
    return found


def _check_value(known: Mapping[str, tuple[bool, float]], key: str, value: float) -> None:
    if key not in known:
        raise InvalidRequestError(f"Invalid configuration key {key}")
    whole, limit = known[key]
    if not value > 0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    if value > limit:
        raise InvalidRequestError(f"Proposed value for {key} is too large")
    if whole and abs(value % 1.0) > 1e-6:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")
