"""Delegation tokens as decisions over the image (KIP-48, KIP-373)."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from typing import Any

from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller.token_control import TokenControl
from triokafka.broker_stub.controller.token_expiry import expired_tokens
from triokafka.broker_stub.metadata.delegation_tokens import MetadataDelegationTokens
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage
from triokafka.protocol.api.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from triokafka.protocol.api.expire_delegation_token import ExpireDelegationTokenRequest
from triokafka.protocol.api.renew_delegation_token import RenewDelegationTokenRequest
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import FeatureLevelRecord
from triokafka.security.delegation_tokens import token_secret
from triokafka.security.scram_credentials import ScramMechanism

KEY = "a key of all nodes"
NOW = 1_700_000_000_000
DAY, WEEK = 86_400_000, 7 * 86_400_000


class Cluster:
    """The tokens of one controller."""

    def __init__(self, *, level: int = 14, **options: Any) -> None:
        self.control = TokenControl(BrokerConfig(**{"delegation_token_secret_key": KEY, **options}))
        self.image: MetadataImage = EMPTY_IMAGE
        self.now_ms = NOW
        self._ids = (uuid.UUID(int=number << 100) for number in itertools.count(1))
        self.replay([FeatureLevelRecord(name="metadata.version", feature_level=level)])

    def replay(self, records: Sequence[Struct]) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.image(self.image.offset + len(records), 1)

    def create(
        self, requester: str = "User:alice", *renewers: str, lifetime: int = -1, owner: str | None = None
    ) -> Any:
        kind, _, name = (owner or ":").partition(":")
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind or None,
            owner_principal_name=name or None,
            renewers=[
                CreatableRenewers(principal_type=one.partition(":")[0], principal_name=one.partition(":")[2])
                for one in renewers
            ],
            max_lifetime_ms=lifetime,
        )
        outcome = self.control.create(
            self.image, request, requester=requester, version=3, now_ms=self.now_ms, new_id=self._ids.__next__
        )
        self.replay(outcome.records)
        return outcome.response

    def renew(self, hmac: bytes, requester: str = "User:alice", period: int = -1) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period)
        outcome = self.control.renew(self.image, request, requester=requester, now_ms=self.now_ms)
        self.replay(outcome.records)
        return outcome.response.error_code, outcome.response.expiry_timestamp_ms - self.now_ms

    def expire(self, hmac: bytes, requester: str = "User:alice", period: int = -1) -> int:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period)
        outcome = self.control.expire(self.image, request, requester=requester, now_ms=self.now_ms)
        self.replay(outcome.records)
        return outcome.response.error_code


def test_token_has_its_secret_owner_and_times() -> None:
    cluster = Cluster()
    token = cluster.create("User:admin", "User:bob", owner="User:alice")
    assert token.error_code == 0 and token.hmac == token_secret(token.token_id, KEY)
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "admin")
    assert (token.expiry_timestamp_ms - NOW, token.max_timestamp_ms - NOW) == (DAY, WEEK)
    short = cluster.create(lifetime=1000)
    assert (short.expiry_timestamp_ms - NOW, short.max_timestamp_ms - NOW) == (1000, 1000)
    long = cluster.create(lifetime=2 * WEEK)
    assert long.max_timestamp_ms - NOW == WEEK


def test_owner_and_renewers_renew_until_the_maximum_and_others_may_not() -> None:
    cluster = Cluster()
    token = cluster.create("User:alice", "User:bob").hmac
    mismatch = errors.DelegationTokenOwnerMismatchError.code
    assert cluster.renew(token, "User:eve")[0] == mismatch and cluster.expire(token, "User:eve") == mismatch
    cluster.now_ms += DAY // 2
    assert cluster.renew(token, "User:bob") == (0, DAY)
    assert cluster.renew(token, period=1000) == (0, 1000)
    assert cluster.renew(token, period=2 * DAY) == (0, DAY)
    for _ in range(6):
        cluster.now_ms += DAY
        error, left = cluster.renew(token)
        assert error == 0
    assert left == DAY // 2
    cluster.now_ms += DAY
    assert cluster.renew(token)[0] == errors.DelegationTokenExpiredError.code
    assert cluster.renew(b"unknown")[0] == errors.DelegationTokenNotFoundError.code


def test_token_expires_on_request_and_is_removed_at_once_or_by_the_sweep() -> None:
    cluster = Cluster()
    token, other = cluster.create(), cluster.create()
    assert cluster.expire(token.hmac, period=100) == 0
    cluster.now_ms += 101
    assert cluster.expire(token.hmac, period=100) == errors.DelegationTokenExpiredError.code
    tokens = MetadataDelegationTokens(lambda: cluster.image, lambda: cluster.now_ms, secret_key=KEY, salt_key=b"s")
    assert tokens.login(ScramMechanism.SCRAM_SHA_256, token.token_id) is None, "expired, and not yet removed"
    assert tokens.login(ScramMechanism.SCRAM_SHA_256, other.token_id) is not None
    swept = expired_tokens(cluster.image, cluster.now_ms)
    assert swept.response == 1
    cluster.replay(swept.records)
    assert cluster.expire(token.hmac) == errors.DelegationTokenNotFoundError.code
    assert cluster.expire(other.hmac) == 0
    assert not cluster.image.security_records


def test_tokens_need_the_key_the_metadata_version_and_users_as_renewers() -> None:
    disabled = errors.DelegationTokenAuthDisabledError.code
    without = Cluster(delegation_token_secret_key=None)
    assert without.create().error_code == without.renew(b"x")[0] == without.expire(b"x") == disabled
    assert Cluster(level=13).create().error_code == errors.UnsupportedVersionError.code
    assert Cluster().create("User:a", "Group:g").error_code == errors.InvalidPrincipalTypeError.code
