"""Changes of users' SCRAM credentials (KIP-554) as decisions over the image. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triokafka.broker_stub.controller.outcome import Outcome, Steps, check_size
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.broker_stub.metadata.scram_credentials import SCRAM
from triokafka.errors import (
    BrokerResponseError,
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from triokafka.security.scram_credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, stored_credential

if TYPE_CHECKING:
    from triokafka.protocol.api.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )


def alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> Steps[AlterUserScramCredentialsResponse]:
    """Set and remove credentials; each user succeeds or fails independently, and may occur only once.

    Raises:
        PolicyViolationError: the request needs too many records.
    """
    from triokafka.protocol.api.alter_user_scram_credentials import (
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResult,
    )

    check_size((), len(request.deletions) + len(request.upsertions))
    records: dict[str, Struct] = {}
    failures: dict[str, ItemError] = {}
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for change in changes:
        yield 1
        user = change.name
        if user in failures:
            continue
        try:
            if user in records:
                raise DuplicateResourceError("A user credential cannot be altered twice in the same request")
            records[user] = _record(image, change)
        except BrokerResponseError as error:
            records.pop(user, None)
            failures[user] = ItemError.of(error)
    results = [AlterUserScramCredentialsResult(user=user, error_message=None) for user in records]
    results += [
        AlterUserScramCredentialsResult(user=user, error_code=failure.code, error_message=failure.message)
        for user, failure in failures.items()
    ]
    return Outcome(list(records.values()), AlterUserScramCredentialsResponse(results=results))


def _record(image: MetadataImage, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> Struct:
    from triokafka.protocol.api.alter_user_scram_credentials import ScramCredentialDeletion

    if not change.name:
        raise UnacceptableCredentialError("Username must not be empty")
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError:
        raise UnsupportedSaslMechanismError("Unknown SCRAM mechanism") from None
    if isinstance(change, ScramCredentialDeletion):
        if (SCRAM, change.name, change.mechanism) not in image.security_records:
            raise ResourceNotFoundError("Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if "\0" in change.name:  # Kafka stores it, and then refuses every login (RFC 5802: a name has no such character)
        raise UnacceptableCredentialError("Username must not contain a zero character, which SCRAM does not allow")
    if change.iterations < MIN_ITERATIONS:
        raise UnacceptableCredentialError("Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise UnacceptableCredentialError("Too many iterations")
    return credential_record(
        change.name, mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
    )


def credential_record(
    user: str, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> UserScramCredentialRecord:
    """Return the record that sets a credential."""
    credential = stored_credential(mechanism, salted_password, salt, iterations)
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism.value,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=iterations,
    )
