"""What ``format("triokafka")`` can be told, and the sentences with which it refuses (`spark/3.1`)."""

from __future__ import annotations

import pytest

from triokafka.errors import ConfigurationError
from triokafka.spark.options import EARLIEST, LATEST, ReadOptions


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", **options})


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        parse(**options)
    return str(refused.value)


def test_defaults_of_a_batch_read_are_the_connectors():
    options = parse()
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert options.include_headers is False
    assert options.client == {}


def test_topics_are_trimmed_and_each_is_read_once():
    assert parse(subscribe=" orders, payments ,,orders").topics == ("orders", "payments")


def test_names_of_options_are_compared_without_regard_to_case():
    options = ReadOptions.parse(
        {"KAFKA.BOOTSTRAP.SERVERS": "a:1", "Subscribe": "t", "IncludeHeaders": "TRUE", "startingoffsets": "Earliest"}
    )
    assert options.bootstrap_servers == "a:1"
    assert options.include_headers is True


def test_offsets_by_partition_may_be_words_of_the_protocol():
    options = parse(startingOffsets='{"orders": {"0": 23, "1": -2}}', endingOffsets='{"orders": {"0": 50, "1": -1}}')
    assert options.starting == {"orders": {0: 23, 1: EARLIEST}}
    assert options.ending == {"orders": {0: 50, 1: LATEST}}


def test_client_settings_take_kafkas_names_and_become_numbers_and_flags():
    options = parse(**{"kafka.max.partition.fetch.bytes": "4096", "kafka.check.crcs": "false", "kafka.client.id": "7"})
    assert options.client == {"max_partition_fetch_bytes": 4096, "check_crcs": False, "client_id": "7"}


def test_client_settings_may_hold_passwords_and_are_not_shown():
    """Spark can print every local variable of a failed task (`spark/2.4`)."""
    assert "hush" not in repr(parse(**{"kafka.client.id": "hush"}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.bootstrap.servers": " "}, "'kafka.bootstrap.servers' must be specified"),
        ({"subscribe": " , "}, "'subscribe' must name at least one topic"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"orders": {"0": -1}}'},
            "startingOffsets for orders-0 can't be latest for batch queries on Kafka",
        ),
        (
            {"endingOffsets": '{"orders": {"1": -2}}'},
            "ending offset for orders-1 can't be earliest for batch queries on Kafka",
        ),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets for orders-0 is -3, which is no offset"),
        ({"startingOffsets": "yesterday"}, "'startingOffsets' expects earliest or JSON like"),
        ({"startingOffsets": "[1]"}, "'startingOffsets' expects earliest or JSON like"),
        ({"endingOffsets": '{"orders": 5}'}, "'endingOffsets' expects latest or JSON like"),
        ({"endingOffsets": '{"orders": {"0": 2.5}}'}, "'endingOffsets' expects latest or JSON like"),
        ({"endingOffsets": '{"orders": {"0": true}}'}, "'endingOffsets' expects latest or JSON like"),
        ({"endingOffsets": '{"orders": {"first": 1}}'}, "'endingOffsets' expects latest or JSON like"),
        ({"startingOffsets": '{"payments": {"0": 1}}'}, "expected ['orders'], got ['payments']"),
        ({"includeHeaders": "yes"}, "'includeHeaders' must be 'true' or 'false', not 'yes'"),
        ({"failOnDataLoss": "false"}, "'failOnDataLoss' can only be 'true'"),
        ({"startingOffset": "earliest"}, "Unknown option 'startingoffset'; did you mean 'startingOffsets'?"),
        ({"bootstrap.servers": "a:1"}, "did you mean 'kafka.bootstrap.servers'?"),
        ({"minPartitions": "4"}, "'minPartitions' is not supported yet by format 'triokafka'"),
        ({"subscribePattern": "o.*"}, "'subscribePattern' is not supported yet"),
        ({"kafka.group.id": "g"}, "'group.id' is not supported: a batch read belongs to no group"),
        ({"kafka.auto.offset.reset": "latest"}, "'auto.offset.reset' is not supported: use startingOffsets instead"),
        ({"kafka.value.deserializer": "x"}, "values are always read as bytes"),
        ({"kafka.fetch.max.byte": "1"}, "did you mean 'fetch_max_bytes'?"),
        ({"kafka.isolation.level": "committed"}, "isolation_level"),
        ({"kafka.bootstrap.servers": "http://a:1"}, "'host:port' without a scheme"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(options: dict[str, str], sentence: str):
    assert sentence in refusal(options)
