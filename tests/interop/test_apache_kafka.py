"""Our client against a real Apache Kafka in KRaft mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop import jvm
from tests.support import client_scenario

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    jvm.require("mvn", "java")
    with jvm.apache_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


async def test_our_client_does_a_services_work_with_apache_kafka(kafka: str) -> None:
    await client_scenario.run(kafka, "our-scenario", "our-group")
