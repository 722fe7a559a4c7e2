from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.records.stacks import STACKS, Stack


@pytest.fixture(params=STACKS, ids=repr)
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The records package, compiled and plain."""
    yield request.param
