"""Configuration of topics and brokers: describing with sources, changing one key, replacing all, refusing."""

from __future__ import annotations

from tests.conformance.catalogue import Case, scenario
from tests.conformance.driver import DEFAULT, DYNAMIC_BROKER, DYNAMIC_TOPIC, STATIC_BROKER


def _broker(case: Case) -> str:
    return str(case.client.describe_cluster().nodes[0])


def _becomes(case: Case, topic: str, key: str, value: str | None) -> None:
    case.until(lambda: case.client.describe_configs("topic", topic)[key].value == value)


@scenario
def sources(case: Case) -> None:
    """A topic's values say where they come from: the topic, or the defaults."""
    topic = case.topic(retention_ms=1000)
    found = case.client.describe_configs("topic", topic)
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("1000", DYNAMIC_TOPIC)
    assert (found["segment.bytes"].value, found["segment.bytes"].source) == ("1073741824", DEFAULT)
    assert not found["retention.ms"].read_only
    assert not found["retention.ms"].sensitive


@scenario
def all_keys(case: Case) -> None:
    """A topic is described with all of Kafka's keys and their defaults."""
    found = case.client.describe_configs("topic", case.topic())
    defaults = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "index.interval.bytes": "4096",
        "max.compaction.lag.ms": "9223372036854775807",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
    assert {key: found[key].value for key in defaults} == defaults


@scenario
def set_one(case: Case) -> None:
    """Setting one key leaves the others alone (KIP-339)."""
    topic = case.topic(retention_ms=1000)
    case.client.incremental_alter("topic", topic, {"max.message.bytes": ("set", "54321")})
    _becomes(case, topic, "max.message.bytes", "54321")
    assert case.client.describe_configs("topic", topic)["retention.ms"].value == "1000"


@scenario
def delete_one(case: Case) -> None:
    """Deleting a key brings its default back."""
    topic = case.topic(retention_ms=1000, max_message_bytes=5000)
    case.client.incremental_alter("topic", topic, {"retention.ms": ("delete", None)})
    _becomes(case, topic, "retention.ms", "604800000")
    found = case.client.describe_configs("topic", topic)
    assert found["retention.ms"].source == DEFAULT
    assert found["max.message.bytes"].value == "5000"


@scenario
def append_and_subtract(case: Case) -> None:
    """Words are added to a list and taken away."""
    topic = case.topic(cleanup_policy="delete")
    case.client.incremental_alter("topic", topic, {"cleanup.policy": ("append", "compact")})
    _becomes(case, topic, "cleanup.policy", "delete,compact")
    case.client.incremental_alter("topic", topic, {"cleanup.policy": ("subtract", "delete")})
    _becomes(case, topic, "cleanup.policy", "compact")


@scenario
def append_to_a_number(case: Case) -> None:
    """Only lists can be appended to: INVALID_CONFIG (40)."""
    topic = case.topic()
    changes = {"retention.ms": ("append", "1")}
    assert case.refusal(lambda: case.client.incremental_alter("topic", topic, changes)) == 40


@scenario
def bad_changes(case: Case) -> None:
    """An unknown key or a bad value is refused with INVALID_CONFIG (40), and nothing of the request is done."""
    topic = case.topic()
    for key, value in (("no.such.key", "1"), ("retention.ms", "soon"), ("segment.bytes", "1")):
        changes = {"max.message.bytes": ("set", "777"), key: ("set", value)}
        assert case.refusal(lambda changes=changes: case.client.incremental_alter("topic", topic, changes)) == 40, key
    assert case.client.describe_configs("topic", topic)["max.message.bytes"].value == "1048588"


@scenario
def only_validated(case: Case) -> None:
    """validate.only answers, and changes nothing."""
    topic = case.topic()
    change = {"retention.ms": ("set", "5")}
    case.client.incremental_alter("topic", topic, change, validate_only=True)
    bad = {"retention.ms": ("set", "x")}
    assert case.refusal(lambda: case.client.incremental_alter("topic", topic, bad, validate_only=True)) == 40
    assert case.client.describe_configs("topic", topic)["retention.ms"].value == "604800000"


@scenario
def replaced(case: Case) -> None:
    """AlterConfigs replaces all: what is not named goes back to its default."""
    topic = case.topic(retention_ms=1000)
    case.client.alter_configs("topic", topic, {"max.message.bytes": "5000"})
    _becomes(case, topic, "max.message.bytes", "5000")
    if case.client.name != "kafka-python":  # It adds what is there already.
        assert case.client.describe_configs("topic", topic)["retention.ms"].value == "604800000"


@scenario
def replaced_with_bad_value(case: Case) -> None:
    """AlterConfigs with a bad value is refused with INVALID_CONFIG (40)."""
    topic = case.topic()
    assert case.refusal(lambda: case.client.alter_configs("topic", topic, {"retention.ms": "x"})) == 40


@scenario
def unknown_topic_altered(case: Case) -> None:
    """The configuration of a topic that does not exist is not changed: UNKNOWN_TOPIC_OR_PARTITION (3)."""
    topic = case.name()
    changes = {"retention.ms": ("set", "1")}
    assert case.refusal(lambda: case.client.incremental_alter("topic", topic, changes)) == 3


@scenario
def broker_described(case: Case) -> None:
    """A broker is described with what its configuration says, and with defaults."""
    found = case.client.describe_configs("broker", _broker(case))
    assert found["listeners"].source == STATIC_BROKER
    assert (found["log.retention.hours"].value, found["log.retention.hours"].source) == ("168", DEFAULT)
    assert found["node.id"].read_only


@scenario
def broker_altered(case: Case) -> None:
    """A broker's dynamic value is set and deleted again."""
    node, key = _broker(case), "log.cleaner.io.buffer.load.factor"
    case.client.incremental_alter("broker", node, {key: ("set", "0.8")})
    case.until(lambda: case.client.describe_configs("broker", node)[key].value == "0.8")
    assert case.client.describe_configs("broker", node)[key].source == DYNAMIC_BROKER
    case.client.incremental_alter("broker", node, {key: ("delete", None)})
    case.until(lambda: case.client.describe_configs("broker", node)[key].value == "0.9")


@scenario
def broker_value_that_needs_a_restart(case: Case) -> None:
    """A value that needs a restart is not changed while the broker runs: INVALID_REQUEST (42)."""
    node = _broker(case)
    changes = {"num.partitions": ("set", "9")}
    before = case.client.describe_configs("broker", node)["num.partitions"].value
    assert case.refusal(lambda: case.client.incremental_alter("broker", node, changes)) in (40, 42)
    assert case.client.describe_configs("broker", node)["num.partitions"].value == before
