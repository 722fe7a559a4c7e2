"""InitProducerId (KIP-98, KIP-360, KIP-679)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.broker_stub.api.node import Node, memory_world, running_node
from triokafka import errors
from triokafka.broker_stub.authorizer import Authorizer
from triokafka.broker_stub.metadata.producer_id_block import BLOCK_SIZE
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.security.acl import AclOperation, ResourceType


async def ask(
    node: Node, version: int = 5, *, transactional_id: str | None = None, **fields: Any
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000, **fields)
    return await node.call(request, version)


@pytest.mark.parametrize("version", range(0, 6))
async def test_every_request_gets_another_id_with_epoch_zero(version: int) -> None:
    async with running_node() as node:
        answers = [await ask(node, version) for _ in range(3)]
        assert len({answer.producer_id for answer in answers}) == 3
        assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [(0, 0)] * 3


async def test_ids_are_never_given_twice_over_restarts_and_blocks() -> None:
    """The rest of a block is not used after the broker stops."""
    world = memory_world()
    given: list[int] = []
    for count in (3, BLOCK_SIZE + 2, 1):
        async with running_node(world=world) as node:
            given += [(await ask(node)).producer_id for _ in range(count)]
    assert len(set(given)) == len(given)
    assert given == sorted(given)


async def test_request_with_a_producer_id_gets_a_new_one() -> None:
    """Without a transactional id there is no epoch to bump (KIP-360)."""
    async with running_node() as node:
        first = await ask(node)
        again = await ask(node, producer_id=first.producer_id, producer_epoch=0)
        assert (again.error_code, again.producer_epoch) == (0, 0)
        assert again.producer_id != first.producer_id


@pytest.mark.parametrize("fields", [{"producer_id": 5}, {"producer_epoch": 5}])
async def test_an_id_without_an_epoch_is_refused(fields: dict[str, Any]) -> None:
    async with running_node() as node:
        refused = await ask(node, **fields)
        assert refused.error_code == errors.InvalidRequestError.code
        assert (refused.producer_id, refused.producer_epoch) == (-1, -1)


async def test_empty_transactional_id_is_refused() -> None:
    async with running_node() as node:
        assert (await ask(node, transactional_id="")).error_code == errors.InvalidRequestError.code


async def test_permission_to_write_to_any_topic_suffices() -> None:
    """KIP-679."""

    class NotTheCluster(Authorizer):
        may_write = True

        def allows(
            self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
        ) -> bool:
            return operation is not AclOperation.IDEMPOTENT_WRITE

        def allows_somewhere(
            self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
        ) -> bool:
            assert (operation, resource_type) == (AclOperation.WRITE, ResourceType.TOPIC)
            return self.may_write

    authorizer = NotTheCluster()
    async with running_node(authorizer=authorizer) as node:
        assert (await ask(node)).error_code == 0
        authorizer.may_write = False
        assert (await ask(node)).error_code == errors.ClusterAuthorizationFailedError.code
