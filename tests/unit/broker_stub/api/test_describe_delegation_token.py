"""DescribeDelegationToken of very many tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import trio

from triokafka.broker_stub.api.describe_delegation_token import describe_delegation_token
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE
from triokafka.protocol.api.describe_delegation_token import DescribeDelegationTokenRequest
from triokafka.protocol.stored.cluster_metadata import DelegationTokenRecord

_COUNT = 300


async def test_other_tasks_run_while_very_many_tokens_are_described() -> None:
    """Each token costs an HMAC: five thousand held the event loop for most of a second."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for number in range(_COUNT):
        delta.replay(DelegationTokenRecord(owner="User:alice", requester="User:alice", token_id=f"t{number:03}"))
    context: Any = SimpleNamespace(
        token_authenticated=False,
        forwarded=True,
        config=SimpleNamespace(delegation_token_secret_key="key"),
        metadata=SimpleNamespace(image=delta.image(_COUNT, 1)),
        principal="User:alice",
        version=3,
        items=0,
    )
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        response = await describe_delegation_token(DescribeDelegationTokenRequest(owners=None), context)
        nursery.cancel_scope.cancel()
    assert {token.token_id for token in response.tokens} == {f"t{number:03}" for number in range(_COUNT)}
    assert turns >= _COUNT // 100
