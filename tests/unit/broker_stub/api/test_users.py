"""AlterUserScramCredentials and DescribeUserScramCredentials over the cluster's metadata."""

from __future__ import annotations

from typing import Any

from tests.unit.broker_stub.api.node import Node, memory_world, running_node
from triokafka import errors
from triokafka.broker_stub.metadata.scram_credentials import MetadataScramCredentials
from triokafka.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from triokafka.protocol.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from triokafka.security.scram_credentials import ScramMechanism, salt_password, stored_credential

SHA_256, SHA_512 = 1, 2
SALT = b"0123456789abcdef"
SALTED = salt_password(ScramMechanism.SCRAM_SHA_256, b"pencil", SALT, 4096)
_UNACCEPTABLE = errors.UnacceptableCredentialError.code
_DUPLICATE = errors.DuplicateResourceError.code
_MISSING = errors.ResourceNotFoundError.code


def upsertion(name: str = "alice", mechanism: int = SHA_256, **changes: Any) -> ScramCredentialUpsertion:
    values: dict[str, Any] = {"iterations": 4096, "salt": SALT, "salted_password": SALTED}
    return ScramCredentialUpsertion(**{"name": name, "mechanism": mechanism, **values, **changes})


async def alter(node: Node, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    return {result.user: result.error_code for result in (await node.call(request, 0)).results}


async def described(node: Node, *users: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users] or None)
    return {
        result.user: (result.error_code, [(info.mechanism, info.iterations) for info in result.credential_infos])
        for result in (await node.call(request, 0)).results
    }


def test_stored_keys_are_those_of_the_rfc() -> None:
    """RFC 7677: user, pencil, salt W22ZaJ0SNY7soEsUEjb6gQ==, 4096 iterations."""
    import base64

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    mechanism = ScramMechanism.SCRAM_SHA_256
    credential = stored_credential(mechanism, salt_password(mechanism, b"pencil", salt, 4096), salt, 4096)
    assert base64.b64encode(credential.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    assert base64.b64encode(credential.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="


async def test_credentials_are_set_described_found_and_removed() -> None:
    world = memory_world()
    async with running_node(world=world) as node:
        assert await alter(node, upsertion(), upsertion("bob", SHA_512, iterations=8192)) == {"alice": 0, "bob": 0}
        assert await alter(node, upsertion(mechanism=SHA_512)) == {"alice": 0}
        both = {"alice": (0, [(SHA_256, 4096), (SHA_512, 4096)]), "bob": (0, [(SHA_512, 8192)])}
        assert await described(node) == both
    async with running_node(world=world) as node:
        assert await described(node, "bob", "carol") == {"bob": both["bob"], "carol": (_MISSING, [])}
        assert await described(node, "bob", "bob") == {"bob": (_DUPLICATE, [])}
        credentials = MetadataScramCredentials(lambda: node.broker.image)
        expected = stored_credential(ScramMechanism.SCRAM_SHA_256, SALTED, SALT, 4096)
        assert credentials.credential(ScramMechanism.SCRAM_SHA_256, "alice") == expected
        assert "pencil" not in repr(expected) and SALT.decode() not in repr(expected)
        assert await alter(node, ScramCredentialDeletion(name="alice", mechanism=SHA_256)) == {"alice": 0}
        assert credentials.credential(ScramMechanism.SCRAM_SHA_256, "alice") is None
        assert credentials.credential(ScramMechanism.SCRAM_SHA_512, "alice") is not None
        assert credentials.credential(ScramMechanism.SCRAM_SHA_256, "nobody") is None


async def test_wrong_change_fails_alone() -> None:
    async with running_node() as node:
        outcome = await alter(
            node,
            ScramCredentialDeletion(name="missing", mechanism=SHA_256),
            upsertion("", SHA_256),
            upsertion("unknown", 3),
            upsertion("zero\0character"),
            ScramCredentialDeletion(name="missing\0", mechanism=SHA_256),
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16_385),
            upsertion("twice"),
            upsertion("twice", SHA_512),
            upsertion("alice"),
        )
        assert outcome == {
            "missing": _MISSING,
            "": _UNACCEPTABLE,
            "unknown": errors.UnsupportedSaslMechanismError.code,
            "zero\0character": _UNACCEPTABLE,
            "missing\0": _MISSING,  # a credential from Apache Kafka can be removed
            "few": _UNACCEPTABLE,
            "many": _UNACCEPTABLE,
            "twice": _DUPLICATE,
            "alice": 0,
        }
        assert list(await described(node)) == ["alice"]
