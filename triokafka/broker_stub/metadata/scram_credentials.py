"""The SCRAM credentials of users in the metadata image: lookup for listeners, description for clients."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.security_records import scram_credential_of
from triokafka.protocol.stored.cluster_metadata import UserScramCredentialRecord
from triokafka.security.scram_credentials import ScramCredential, ScramMechanism

SCRAM: str = "scram"


class MetadataScramCredentials:
    """Looks credentials up in the newest image of a node; implements `ScramCredentials`."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the credential of ``user``; None when the user has none of this mechanism."""
        record = self._image().security_records.get((SCRAM, user, mechanism.value))
        return scram_credential_of(record) if isinstance(record, UserScramCredentialRecord) else None


def iterations_by_user(image: MetadataImage) -> dict[str, dict[int, int]]:
    """Return the iterations of every user's credentials, by user and mechanism number, in the order of names."""
    found: dict[str, dict[int, int]] = {}
    for key in sorted(key for key in image.security_records if key[0] == SCRAM):
        record = image.security_records[key]
        if isinstance(record, UserScramCredentialRecord):
            found.setdefault(record.name, {})[record.mechanism] = record.iterations
    return found
