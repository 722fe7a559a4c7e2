"""Configuration of groups: the broker's limits and their names."""

from __future__ import annotations

import pytest

from triokafka.broker_stub.config import DEFINITIONS
from triokafka.broker_stub.config.known_names import UNUSED_NAMES
from triokafka.broker_stub.metadata.group_and_metrics_configs import BOUNDS, bound_name

NAMES = [
    bound_name(name, which)
    for name, bounds in BOUNDS.items()
    for which, bound in zip(("min", "max"), bounds, strict=True)
    if bound is not None
]


@pytest.mark.parametrize("name", NAMES)
def test_bound_of_a_group_key_is_an_option_of_the_broker(name: str) -> None:
    assert name in DEFINITIONS or name in UNUSED_NAMES
