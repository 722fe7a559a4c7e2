"""The precedence of client quotas: eight levels, the most specific first (KIP-55)."""

from __future__ import annotations

import pytest

from triokafka.quota_precedence import CLIENT_ID, USER, EntityParts, effective_quota, quota_levels

LEVELS: list[tuple[EntityParts, tuple[str, str]]] = [
    (((CLIENT_ID, "loader"), (USER, "alice")), ("alice", "loader")),
    (((CLIENT_ID, None), (USER, "alice")), ("alice", "loader")),
    (((USER, "alice"),), ("alice", "")),
    (((CLIENT_ID, "loader"), (USER, None)), ("alice", "loader")),
    (((CLIENT_ID, None), (USER, None)), ("alice", "loader")),
    (((USER, None),), ("alice", "")),
    (((CLIENT_ID, "loader"),), ("", "loader")),
    (((CLIENT_ID, None),), ("", "loader")),
]
"""The levels in the order of Kafka's documentation, and the clients that share each."""


def test_levels_have_the_order_of_kafka() -> None:
    assert [(level.entity, level.shared_by) for level in quota_levels("alice", "loader")] == LEVELS


def test_client_without_a_client_id_has_only_the_levels_of_its_user() -> None:
    assert [level.entity for level in quota_levels("alice", "")] == [((USER, "alice"),), ((USER, None),)]


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_first_level_with_a_value_applies(first: int) -> None:
    quotas = {entity: {"producer_byte_rate": float(n)} for n, (entity, _) in enumerate(LEVELS) if n >= first}
    found = effective_quota(quotas, "producer_byte_rate", "alice", "loader")
    assert found is not None
    assert found[0] == first
    assert effective_quota(quotas, "consumer_byte_rate", "alice", "loader") is None


def test_level_without_the_quota_does_not_hide_a_later_one() -> None:
    quotas: dict[EntityParts, dict[str, float]] = {
        LEVELS[0][0]: {"request_percentage": 50.0},
        LEVELS[7][0]: {"producer_byte_rate": 9.0},
    }
    found = effective_quota(quotas, "producer_byte_rate", "alice", "loader")
    assert found is not None
    assert found[0] == 9.0
