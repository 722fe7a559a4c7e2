"""Records that Apache Kafka refuses: the same tests as with our own broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.integration.test_producer_wrong_use import (  # noqa: F401 - the tests of this module too
    test_error_of_a_missing_partition_has_its_number,
    test_invalid_topic_name_is_refused_at_once,
    test_record_that_is_too_large_for_the_topic_fails_alone,
    test_record_without_key_fails_alone_on_a_compacted_topic,
    test_timestamp_too_far_from_the_brokers_clock_is_refused,
    test_topic_that_is_deleted_while_sending_fails_its_records_and_no_others,
)
from tests.interop import jvm

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with jvm.apache_kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"
