"""The commands for topics, configurations, producing and consuming, against a broker in its own process."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.command_output import without_waiting
from tests.support.tool import Tool
from triokafka.cli import produce_run, unreachable_brokers
from triokafka.cli.app import run
from triokafka.cli.line_reader import Item


class NamesFormatter:
    """Returns text, which is neither a record nor bytes, for every record."""

    def __init__(self, properties: object) -> None:
        pass

    def __call__(self, *_: object) -> str:
        return "a name"


class FailingReader:
    """Reads the first line, and fails at the second like a program with a bug."""

    def __init__(self, properties: object) -> None:
        self._known = {b"v": Item(None, b"v")}

    def __call__(self, line: bytes, number: int) -> Item:
        if line not in self._known:
            raise KeyError(line.decode())
        return self._known[line]


class TestTopics:
    def test_installation_smoke_test(self, tool: Tool) -> None:
        """Create, produce, consume."""
        assert tool.ok("topics", "create", "smoke", "--partitions", "1", "--replication-factor", "1") == (
            "Created topic smoke.\n"
        )
        assert tool("produce", "smoke", stdin="first line\nsecond line\n").err == "2 records acknowledged\n"
        done = tool("consume", "smoke", "--from-beginning", "--max-messages", "2")
        assert done == (0, "first line\nsecond line\n", "Processed a total of 2 messages\n")

    def test_topic_is_created_with_the_given_options(self, tool: Tool) -> None:
        done = tool("topics", "create", "tp.one", "--partitions", "3", "--config", "retention.ms=5")
        assert done.status == 0 and "metric names do not distinguish '.' and '_'" in done.err
        tool.ok("topics", "create", "tp-assigned", "--replica-assignment", "1,1")
        described = tool.ok("topics", "describe", "tp.one").splitlines()
        elr = ["Elr: ", "LastKnownElr: "]
        assert described[0].endswith(
            "\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: min.insync.replicas=1,retention.ms=5"
        )
        assert [line.split("\t")[1:] for line in tool.ok("topics", "describe", "tp-assigned").splitlines()[1:]] == [
            ["Topic: tp-assigned", f"Partition: {number}", "Leader: 1", "Replicas: 1", "Isr: 1", *elr]
            for number in (0, 1)
        ]

    def test_exactly_one_action_is_requested(self, tool: Tool) -> None:
        assert tool("topics").status == 2
        assert "No such command 'crate'" in tool("topics", "crate", "x").err

    def test_large_records_cause_a_warning_and_the_topic_is_created(self, tool: Tool) -> None:
        done = tool("topics", "create", "tp-large", "--config", "max.message.bytes=1048589")
        assert done.status == 0 and "may exceed the limits of producers and consumers" in done.err
        assert (
            "may exceed the limits"
            not in tool("topics", "create", "tp-usual", "--config", "max.message.bytes=1048588").err
        )
        assert "max.message.bytes=1048589" in tool.ok("topics", "describe", "tp-large")

    def test_wrong_creation_gives_the_reason_and_creates_nothing(self, tool: Tool) -> None:
        tool.ok("topics", "create", "tp-twice")
        assert "already exists" in tool.fails("topics", "create", "tp-twice")
        assert tool.ok("topics", "create", "tp-twice", "--if-not-exists") == "Topic tp-twice already exists.\n"
        assert "contains one or more characters other than" in tool.fails("topics", "create", "no/such")
        assert "replicate the partition 2 time(s)" in tool.fails(
            "topics", "create", "tp-rf", "--replication-factor", "2"
        )
        assert "did you mean retention.ms" in tool.fails("topics", "create", "tp-key", "--config", "retentoin.ms=5")
        assert "takes NAME=VALUE" in tool.fails("topics", "create", "tp-key", "--config", "retention.ms", status=2)
        for wrong in (
            ["--partitions", "0"],
            ["--partitions", str(2**31)],
            ["--replica-assignment", str(2**31)],
            ["--replica-assignment", "1", "--partitions", "1"],
            ["--replica-assignment", "1:1"],
            ["--replica-assignment", "1:2,3"],
            ["--replica-assignment", "one"],
            ["--no-such-flag"],
        ):
            assert "See triokafka topics create --help." in tool.fails("topics", "create", "tp-bad", *wrong, status=2)
        assert tool.ok("topics", "create", "tp-dry", "--dry-run").startswith("Topic tp-dry could be created")
        listed = tool.ok("topics", "list").split()
        assert not {"tp-rf", "tp-key", "tp-bad", "tp-dry"} & set(listed)

    def test_names_that_collide_in_metrics_are_refused(self, tool: Tool) -> None:
        tool.ok("topics", "create", "tp.collides")
        assert "collides with existing topic 'tp.collides'" in tool.fails("topics", "create", "tp_collides")

    def test_list_takes_patterns_and_shows_internal_topics(self, tool: Tool) -> None:
        for name in ("ls-b", "ls-a", "ls-c"):
            tool.ok("topics", "create", name)
        tool.ok("consume", "ls-a", "--group", "ls-group", "--timeout-ms", "10")
        everything = tool.ok("topics", "list").splitlines()
        assert everything == sorted(everything) and "__consumer_offsets" in everything
        assert "__consumer_offsets" not in tool.ok("topics", "list", "--exclude-internal").split()
        assert tool.ok("topics", "list", "ls-[ab],ls-c").split() == ["ls-a", "ls-b", "ls-c"]
        assert tool.ok("topics", "list", "nothing.*") == ""
        (row,) = json.loads(tool.ok("topics", "list", "ls-a", "--output", "json"))
        assert (row["name"], row["internal"], len(row["id"])) == ("ls-a", False, 22)

    def test_describe_reports_only_the_requested_topics(self, tool: Tool) -> None:
        tool.ok("topics", "create", "rep-plain", "--partitions", "2")
        tool.ok("topics", "create", "rep-strict", "--config", "min.insync.replicas=2")
        describe = ("topics", "describe", "rep-.*")
        assert tool.ok(*describe, "--under-replicated-partitions") == ""
        assert tool.ok(*describe, "--unavailable-partitions") == ""
        assert "Topic: rep-strict" in tool.ok(*describe, "--under-min-isr-partitions")
        assert len(tool.ok(*describe, "--at-min-isr-partitions").splitlines()) == 2
        found = tool.ok(*describe, "--topics-with-overrides", "--partition-size-limit-per-response", "1").splitlines()
        assert len(found) == 2  # one of the cluster, one of the topic
        assert "rep-strict" in found[1] and "min.insync.replicas=2" in found[1]
        both = ("--unavailable-partitions", "--topics-with-overrides")
        assert "exclude each other" in tool.fails(*describe, *both, status=2)
        for none in ("missing", "", ","):
            assert f"no topic matches '{none}'" in tool.fails("topics", "describe", none)
        assert tool.ok("topics", "describe", "missing", "--if-exists") == ""
        (topic,) = json.loads(tool.ok("topics", "describe", "rep-plain", "--output", "json"))
        assert [partition["partition"] for partition in topic["partitions"]] == [0, 1]
        assert tool.ok("topics", "describe", "--topic-id", topic["id"]).startswith("Topic: rep-plain\t")
        assert "is not a topic id" in tool.fails("topics", "describe", "--topic-id", "xyz", status=2)

    def test_topics_only_grow(self, tool: Tool) -> None:
        tool.ok("topics", "create", "grows")
        done = tool("topics", "alter", "grows", "--partitions", "3")
        assert done.out == "Topic grows has 3 partitions.\n" and "another partition" in done.err
        message = tool.fails("topics", "alter", "grows", "--partitions", "2")
        assert "2 would not be an increase" in message and "Note:" not in message
        tool.ok("topics", "alter", "grows", "--partitions", "4", "--replica-assignment", "1,1,1,1")
        assert "all 5 partitions" in tool.fails(
            "topics", "alter", "grows", "--partitions", "5", "--replica-assignment", "1", status=2
        )
        assert "no topic matches" in tool.fails("topics", "alter", "missing", "--partitions", "2")
        assert tool.ok("topics", "alter", "missing", "--partitions", "2", "--if-exists") == ""
        assert "configs alter --topic" in tool.fails(
            "topics", "alter", "grows", "--partitions", "9", "--config", "a=b", status=2
        )
        tool.ok("consume", "grows", "--group", "g", "--timeout-ms", "10")
        assert "cannot grow" in tool.fails("topics", "alter", "__consumer_offsets", "--partitions", "99", status=2)

    def test_deleting_by_a_pattern_asks_for_confirmation(self, tool: Tool) -> None:
        for name in ("del-a", "del-b", "del-c"):
            tool.ok("topics", "create", name)
        assert tool.ok("topics", "delete", "del-.*", "--dry-run").splitlines() == [
            f"Would delete topic del-{letter}." for letter in "abc"
        ]
        assert "Give --yes" in tool.fails("topics", "delete", "del-.*", status=2)
        assert tool.ok("topics", "delete", "del-a") == "Deleted topic del-a.\n"
        assert tool.ok("topics", "delete", "del-.*", "--yes") == "Deleted topic del-b.\nDeleted topic del-c.\n"
        assert "no topic matches" in tool.fails("topics", "delete", "del-a")
        assert tool.ok("topics", "delete", "del-a", "--if-exists") == ""
        assert "TOPICS or --topic-id" in tool.fails("topics", "delete", status=2)

    def test_unreachable_broker_is_one_error_line(self, capfd: pytest.CaptureFixture[str]) -> None:
        status = run(["topics", "list", "--bootstrap-server", "127.0.0.1:1", "-X", "default.api.timeout.ms=300"])
        assert status == 1
        (line,) = capfd.readouterr().err.splitlines()
        assert "127.0.0.1:1" in line

    @pytest.mark.parametrize(
        "command",
        [
            ["topics", "list"],
            ["topics", "create", "t"],
            ["topics", "delete", "t", "--yes"],
            ["configs", "describe", "--topic", "t"],
            ["groups", "list"],
        ],
        ids=" ".join,
    )
    def test_silent_broker_is_one_error_line_in_time(
        self, command: list[str], capfd: pytest.CaptureFixture[str]
    ) -> None:
        """A hanging broker accepts connections and never responds."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            status = run([*command, "--bootstrap-server", address, "-X", "default.api.timeout.ms=300"])
        assert status == 1
        (line,) = capfd.readouterr().err.splitlines()
        assert address in line

    def test_options_of_the_client_come_from_file_and_command_line(self, tool: Tool, tmp_path: Path) -> None:
        """``--command-config``."""
        config = tmp_path / "client.properties"
        config.write_text("request.timeout.ms=20000\n")
        assert tool.ok("topics", "list", "nothing", "--command-config", str(config)) == ""
        config.write_text("request.timeot.ms=20000\n")
        assert "did you mean 'request_timeout_ms'" in tool.fails(
            "topics", "list", "--command-config", str(config), status=2
        )
        assert "cannot be read" in tool.fails("topics", "list", "--command-config", str(tmp_path / "no"), status=2)


class TestConfigs:
    def test_values_are_set_shown_with_their_sources_and_removed(self, tool: Tool) -> None:
        tool.ok("topics", "create", "cfg")
        alter = ("configs", "alter", "--topic", "cfg")
        tool.ok(*alter, "--add-config", "retention.ms=5,cleanup.policy=[compact,delete]")
        shown = tool.ok("configs", "describe", "--topic", "cfg")
        assert shown.splitlines() == [
            "Dynamic configs for topic cfg are:",
            "  cleanup.policy=compact,delete sensitive=false "
            "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
            "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5}",
        ]
        tool.ok(*alter, "--delete-config", "retention.ms", "--subtract-config", "cleanup.policy=delete")
        assert "cleanup.policy=compact sensitive" in tool.ok("configs", "describe", "--topic", "cfg")
        assert "retention.ms=604800000" in tool.ok("configs", "describe", "--topic", "cfg", "--all")
        tool.ok(*alter, "--add-config", "retention.ms=9", "--dry-run")
        (row,) = json.loads(
            tool.ok("configs", "describe", "--entity-type", "topics", "--entity-name", "cfg", "--output", "json")
        )
        assert [(entry["name"], entry["source"]) for entry in row["configs"]] == [
            ("cleanup.policy", "DYNAMIC_TOPIC_CONFIG")
        ]

    def test_wrong_use_is_one_sentence(self, tool: Tool) -> None:
        tool.ok("topics", "create", "cfg-wrong")
        alter = ("configs", "alter", "--topic", "cfg-wrong")
        assert "Nothing to change" in tool.fails(*alter, status=2)
        assert "both set and deleted" in tool.fails(*alter, "--add-config", "a=1", "--delete-config", "a", status=2)
        assert "brackets" in tool.fails(*alter, "--add-config", "a=[1,b", status=2)
        assert "did you mean retention.ms" in tool.fails(*alter, "--add-config", "retention.m=1")
        assert "Not a number of type LONG" in tool.fails(*alter, "--add-config", "retention.ms=soon")
        assert "is not a configuration of" in tool.fails(*alter, "--delete-config", "nope")
        assert "No entity" in tool.fails("configs", "describe", status=2)
        assert "More than one entity" in tool.fails(*alter, "--broker", "1", "--add-config", "a=1", status=2)
        assert "have no default" in tool.fails(
            "configs", "alter", "--entity-type", "topics", "--entity-default", "--add-config", "a=1", status=2
        )
        for wrong in ("x", "", "-1", "²", str(2**31), "1" * 5_000):
            assert "A broker id is a number" in tool.fails("configs", "describe", "--broker", wrong, status=2)

    def test_brokers_have_dynamic_configuration_of_their_own_and_together(self, tool: Tool) -> None:
        tool.ok("configs", "alter", "--broker-defaults", "--add-config", "log.retention.ms=700000000")
        tool.ok("configs", "alter", "--broker", "1", "--add-config", "log.retention.ms=600000000")
        shown = tool.ok("configs", "describe", "--entity-type", "brokers")
        assert (
            "synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=600000000,"
            " DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=700000000, DEFAULT_CONFIG:log.retention.hours=168}"
            in shown
        )
        assert "Cannot update these configs dynamically: [node.id]" in tool.fails(
            "configs", "alter", "--broker", "1", "--add-config", "node.id=2"
        )
        refused = tool.fails("configs", "alter", "--broker-defaults", "--add-config", "node.id=2")
        assert refused == ("triokafka: the default of all brokers: Cannot update these configs dynamically: [node.id]")
        for one in (["--broker-defaults"], ["--broker", "1"]):
            tool.ok("configs", "alter", *one, "--delete-config", "log.retention.ms")

    def test_quotas_are_configuration_of_users_and_clients(self, tool: Tool, tmp_path: Path) -> None:
        file = tmp_path / "quotas"
        file.write_text("producer_byte_rate=1000000\n")
        tool.ok("configs", "alter", "--user", "alice", "--client-defaults", "--add-config-file", str(file))
        shown = tool.ok("configs", "describe", "--entity-type", "users", "--entity-type", "clients")
        assert (
            shown
            == "Quota configs for user-principal 'alice', the default client-id are producer_byte_rate=1000000.0\n"
        )
        assert tool.ok("configs", "describe", "--user", "alice") == ""
        assert "takes a number" in tool.fails(
            "configs", "alter", "--ip", "10.0.0.1", "--add-config", "connection_creation_rate=many", status=2
        )
        tool.ok("configs", "alter", "--user", "alice", "--client-defaults", "--delete-config", "producer_byte_rate")
        assert tool.ok("configs", "describe", "--entity-type", "users", "--entity-type", "clients") == ""

    def test_log_levels_and_groups_have_configuration(self, tool: Tool) -> None:
        tool.ok("configs", "alter", "--broker-logger", "1", "--add-config", "triokafka=ERROR")
        assert "  triokafka=ERROR sensitive" in tool.ok("configs", "describe", "--broker-logger", "1")
        tool.ok("configs", "alter", "--group", "cfg-g", "--add-config", "consumer.session.timeout.ms=46000")
        assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=46000" in tool.ok(
            "configs", "describe", "--entity-type", "groups"
        )


class TestProduceAndConsume:
    def test_keys_headers_and_nulls_are_read_and_printed(self, tool: Tool) -> None:
        lines = "h1:x,h2:NULL\tk1\tv1\nNULL\tk2\tNULL\nh:\tNULL\tv:with:colons\n"
        reading = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
        flags = [flag for text in reading for flag in ("--property", text)]
        assert tool("produce", "kv", *flags, "--sync", stdin=lines).err == "3 records acknowledged\n"
        printing = [
            flag for name in ("key", "headers", "offset", "partition") for flag in ("--property", f"print.{name}=true")
        ]
        consume = ("consume", "kv", "--from-beginning", "--max-messages", "3")
        assert tool.ok(*consume, *printing).splitlines() == [
            "Partition:0\tOffset:0\th1:x,h2:null\tk1\tv1",
            "Partition:0\tOffset:1\tNO_HEADERS\tk2\tnull",
            "Partition:0\tOffset:2\th:\tnull\tv:with:colons",
        ]
        only = ("--property", "print.value=false", "--property", "print.key=true", "--property", "line.separator=|")
        assert tool.ok(*consume, *only) == "k1|k2|null|"
        assert tool.ok(*consume, "--property", "print.timestamp=true").startswith("CreateTime:1")
        assert tool.ok(*consume, "--key-separator", "=").splitlines()[0] == "k1=v1"

    def test_line_without_a_separator_ends_the_run_with_its_number_or_is_a_value(self, tool: Tool) -> None:
        key = ("--property", "parse.key=true", "--property", "key.separator=:")
        done = tool("produce", "bad-lines", *key, stdin="a:1\nno separator\nc:3\n")
        assert done.status == 1
        assert done.err.splitlines() == [
            "triokafka: line 2: no key separator (':') in 'no separator'",
            "1 record acknowledged",
        ]
        done = tool("produce", "bad-lines", *key, "--property", "ignore.error=true", stdin="no separator\nempty:\n")
        assert (done.status, done.err) == (0, "2 records acknowledged\n")
        shown = tool.ok(
            "consume", "bad-lines", "--from-beginning", "--max-messages", "3", "--property", "print.key=true"
        )
        assert shown.splitlines() == ["a\t1", "null\tno separator", "empty\t"]

    def test_unacknowledged_record_is_reported_with_status_1(self, tool: Tool) -> None:
        tool.ok("topics", "create", "small", "--config", "max.message.bytes=200")
        done = tool("produce", "small", "--linger-ms", "0", "--sync", stdin=f"short\n{'x' * 500}\nshort\n")
        assert done.status == 1
        failure, summary = done.err.splitlines()
        assert failure.startswith("triokafka: line 2 was not acknowledged: ") and summary == "2 records acknowledged"

    def test_options_of_the_producer_come_from_file_property_and_flag_in_this_order(
        self, tool: Tool, tmp_path: Path
    ) -> None:
        config = tmp_path / "producer.properties"
        config.write_text("compression.type=lz4\nlinger.ms=1\nacks=1\n")
        flags = ("--producer-config", str(config), "-X", "acks=0", "--acks", "all", "--compression-codec")
        assert tool("produce", "options", *flags, stdin="v\n").err == "1 record acknowledged\n"
        for wrong, why in (
            ("lingr.ms=1", "did you mean 'linger_ms'"),
            ("linger.ms=nan", "expected a number"),
        ):
            assert why in tool.fails("produce", "options", "-X", wrong, stdin="v\n", status=2)
        assert "unknown property 'parse.keys'" in tool.fails(
            "produce", "options", "--property", "parse.keys=true", status=2
        )

    def test_too_large_line_is_reported_and_the_next_ones_are_sent(self, tool: Tool) -> None:
        done = tool("produce", "large", stdin=f"one\n{'x' * 2_000_000}\nthree\n")
        assert done.status == 1
        assert "line 2 was not acknowledged: a record of up to 2000036 bytes" in done.err
        assert done.err.endswith("2 records acknowledged\n")
        assert tool.ok("consume", "large", "--from-beginning", "--max-messages", "2") == "one\nthree\n"

    def test_endless_line_takes_bounded_memory_and_is_reported(
        self, tool: Tool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As with ``triokafka produce t < /dev/zero``."""
        monkeypatch.setattr(produce_run, "_LONGEST_LINE", 100_000)
        largest = ("-X", "max.request.size=200000")
        done = tool(
            "produce", "endless", *largest, stdin=f"one\n{'x' * 150_000}\n{'x' * 2_000_000}\nthree\n{'x' * 300_000}"
        )
        assert done.status == 1
        assert "line 3 was not acknowledged: it has 2,000,000 bytes" in done.err
        assert "line 5 was not acknowledged: it has 300,000 bytes" in done.err
        assert done.err.endswith("3 records acknowledged\n")

    def test_failing_custom_line_reader_ends_the_run(self, tool: Tool) -> None:
        produce = ("produce", "own-reader", "--line-reader")
        assert "failed: TypeError" in tool.fails(*produce, "os:getcwd", stdin="v\n", status=2)
        done = tool(*produce, f"{__name__}:FailingReader", stdin="v\nw\n")
        assert done.status == 1 and "line 2 could not be read: KeyError: 'w'" in done.err
        assert done.err.endswith("1 record acknowledged\n")
        assert "returned str, not an Item" in tool(*produce, f"{__name__}:NamesFormatter", stdin="v\n").err

    def test_consume_begins_and_ends_at_the_given_offsets(self, tool: Tool) -> None:
        tool("produce", "places", stdin="0\n1\n2\n3\n")
        consume = ("consume", "places")
        one = ("--partition", "0")
        assert tool.ok(*consume, *one, "--offset", "2", "--max-messages", "2") == "2\n3\n"
        assert tool.ok(*consume, *one, "--offset", "earliest", "--max-messages", "1") == "0\n"
        done = tool(*consume, *one, "--timeout-ms", "100")
        assert done == (0, "", "Processed a total of 0 messages\n")
        assert tool.ok("consume", "--include", "plac.s", "--from-beginning", "--timeout-ms", "500") == "0\n1\n2\n3\n"
        group = ("--group", "places-g", "--from-beginning")
        assert tool.ok(*consume, *group, "--max-messages", "2") == "0\n1\n"
        assert tool.ok(*consume, *group, "--timeout-ms", "500") == "2\n3\n"  # the committed offset wins
        assert tool.ok(*consume, *group, "--timeout-ms", "100", "--enable-systest-events") == "shutdown_complete\n"
        offsets = tool.ok(
            "consume", "__consumer_offsets", "--from-beginning", "--timeout-ms", "500", "--formatter", "offsets"
        )
        assert '{"group":"places-g","topic":"places","partition":0}},"value":{"version":' in offsets
        assert '"data":{"offset":4,"leaderEpoch":' in offsets
        groups = tool.ok(
            "consume", "__consumer_offsets", "--from-beginning", "--timeout-ms", "500", "--formatter", "group-metadata"
        )
        assert '{"group":"places-g"}},"value":{"version":' in groups
        assert '"data":{"protocolType":"consumer","generation":1,' in groups

    def test_partition_of_a_missing_topic_is_an_error_unless_the_topic_is_created(self, tool: Tool) -> None:
        one = ("--partition", "0", "--timeout-ms", "500")
        for more in ((), ("--offset", "earliest"), ("--offset", "5")):
            assert "unknown topic no-such; create it" in tool.fails("consume", "no-such", *one, *more)
        assert "no-such" not in tool.ok("topics", "list").split()
        assert tool("consume", "is-made", *one, "-X", "allow_auto_create_topics=true").status == 0
        assert "is-made" in tool.ok("topics", "list").split()

    def test_options_of_the_consumer_come_from_its_file(self, tool: Tool, tmp_path: Path) -> None:
        """The group comes from the file; the start position comes from the command line."""
        tool("produce", "filed", stdin="0\n1\n")
        config = tmp_path / "consumer.properties"
        config.write_text("group.id=filed-g\nauto.offset.reset=latest\nmax.poll.records=1\n")
        consume = ("consume", "filed", "--consumer.config", str(config), "--from-beginning", "--timeout-ms", "500")
        assert tool.ok(*consume) == "0\n1\n"
        assert "filed-g" in tool.ok("groups", "list").split()
        assert tool.ok(*consume, "--property", "print.key=true", "--value-deserializer", "builtins:str") == ""

    def test_wrong_use_of_consume_is_one_sentence(self, tool: Tool) -> None:
        for flags, words in (
            ([], "either TOPIC or --include"),
            (["t", "--include", "x"], "either TOPIC or --include"),
            (["t", "--partition", "0", "--offset", "soon"], "earliest, latest, an offset"),
            (["t", "--formatter", "pretty"], "is not one of default"),
            (["t", "--formatter", "no.such:Thing"], "cannot be imported"),
            (["t", "--property", "print.keyy=true"], "did you mean print.key?"),
            (["t", "--property", "print.key=perhaps"], "true or false"),
            (["t", "--max-messages", "0"], "--max-messages"),
            (["t", "--timeout-ms", "nan"], "not a finite number"),
            (["t", "--partition", "0", "--offset", "²"], "earliest, latest, an offset"),
            (["t", "--partition", "0", "--offset", str(2**63)], "earliest, latest, an offset"),
            (["t", "--partition", "0", "--offset", "1" * 5_000], "earliest, latest, an offset"),
            (["t", "--group", ""], "the group id is empty"),
            (["--include", "("], "not a regular expression"),
            (["t", "--formatter", "os:getcwd"], "failed: TypeError"),
            (["t", "--formatter", "builtins:dict"], "is not callable"),
            (["t", "-X", "session.timeout.ms=1", "--group", "g"], "must be less than session_timeout_ms"),
        ):
            assert words in tool.fails("consume", *flags, status=2), flags

    def test_formatters(self, tool: Tool) -> None:
        tool("produce", "formats", stdin="a\nb\n")
        consume = ("consume", "formats", "--from-beginning", "--max-messages", "2")
        done = tool(*consume, "--formatter", "noop")
        assert (done.out, done.err) == ("", "Processed a total of 2 messages\n")
        first, second = tool.ok(*consume, "--formatter", "checksum", "--property", "topic=formats").splitlines()
        assert first.startswith("formats:checksum:") and first != second
        assert tool.ok(*consume, "--formatter", "kafka.tools.LoggingMessageFormatter") == "a\nb\n"
        assert tool.ok(*consume, "--value-deserializer", "builtins:len") == "1\n1\n"
        done = tool(*consume, "--value-deserializer", "builtins:int")
        assert done.status == 1 and "formats-0 at offset 0 cannot be printed" in done.err
        done = tool(*consume, "--value-deserializer", "builtins:int", "--skip-message-on-error")
        assert done.status == 0 and done.err.count("is skipped") == 2

    def test_any_number_of_records_may_be_the_most(self, tool: Tool) -> None:
        tool("produce", "few", stdin="a\n")
        assert tool.ok("consume", "few", "--from-beginning", "--max-messages", str(10**23), "--until-end") == "a\n"

    def test_records_before_one_that_cannot_be_printed_are_printed(self, tool: Tool) -> None:
        tool("produce", "halfway", stdin="1\n2\nthree\n4\n")
        done = tool("consume", "halfway", "--from-beginning", "--value-deserializer", "builtins:int")
        assert done.status == 1
        assert done.out == "1\n2\n"
        assert "Processed a total of 2 messages" in done.err

    def test_custom_formatter_that_returns_no_bytes_is_reported(self, tool: Tool) -> None:
        tool("produce", "no-bytes", stdin="1\n")
        done = tool("consume", "no-bytes", "--from-beginning", "--formatter", f"{__name__}:NamesFormatter")
        assert done.status == 1 and "returned str, not bytes" in done.err

    def test_missing_partition_ends_the_run(self, tool: Tool) -> None:
        tool.ok("topics", "create", "two", "--partitions", "2")
        message = tool.fails("consume", "two", "--partition", "7")
        assert message.endswith("topic 'two' has 2 partitions and no two-7; partitions are numbered from 0")

    def test_closed_output_pipe_ends_the_run_silently(self, tool: Tool) -> None:
        """As with ``triokafka consume … | head -1``."""
        tool("produce", "pipe", stdin="".join(f"line {number}\n" for number in range(5_000)))
        process = tool.start("consume", "pipe", "--from-beginning", "-X", "max.poll.records=10")
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"line 0\n"
        process.stdout.close()
        errors = without_waiting(process.stderr.read().decode())
        assert process.wait(timeout=60) == 128 + signal.SIGPIPE
        assert errors.startswith("Processed a total of ") and len(errors.splitlines()) == 1

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_signal_ends_consuming_in_order(self, tool: Tool, number: signal.Signals) -> None:
        topic = f"signal-{number.name.lower()}"
        tool("produce", topic, stdin="one\n")
        process = tool.start("consume", topic, "--from-beginning", "--group", topic)
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        assert without_waiting(errors.decode()) == "Processed a total of 1 messages\n"
        # All printed records are committed.
        assert tool.ok("consume", topic, "--group", topic, "--from-beginning", "--timeout-ms", "200") == ""

    def test_signal_ends_producing_in_order(self, tool: Tool) -> None:
        process = tool.start("produce", "signal-produce", "--linger-ms", "0")
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        assert (
            tool.ok("consume", "signal-produce", "--wait-for-topic", "--from-beginning", "--max-messages", "2")
            == "one\ntwo\n"
        )
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (130, b"2 records acknowledged\n")


class TestWithoutABroker:
    """Messages of a command when no broker responds, or when its output is closed."""

    @pytest.fixture
    def unreachable(self, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Tool]:
        """A tool for a port where connections are refused."""
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            yield Tool(f"127.0.0.1:{reserved.getsockname()[1]}", capfdbinary, monkeypatch)

    def test_consume_prints_what_it_waits_for(self, unreachable: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(unreachable_brokers, "SILENCE", 0.2)
        done = unreachable("consume", "t", "--timeout", "500")
        assert done.status == 1
        refused = f"could not connect to bootstrap server {unreachable.bootstrap}: Connection refused"
        assert f"triokafka: {refused}; trying for another 0.3 s (--broker-timeout)" in done.err.splitlines()
        assert f"triokafka: no broker has responded within 0.5 s: {refused}. Is a broker" in done.err.splitlines()[-1]

    def test_waiting_for_a_silent_broker_is_reported(self, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(unreachable_brokers, "SILENCE", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            tool.bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
            done = tool("consume", "t", "--timeout", "500", waiting=True)
        assert done.status == 1
        assert f"{tool.bootstrap} has not responded yet; trying for another 0.3 s" in done.err

    def test_produce_prints_why_records_are_not_acknowledged(
        self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise it would print nothing until ``delivery_timeout_ms``, which is two minutes."""
        monkeypatch.setattr(produce_run, "_PATIENCE", 0.2)
        broker = BrokerProcess(None)
        bootstrap = broker.start()

        class Input(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                """Return a line; then the broker stops, and another line follows."""
                found = self.readline()
                if found == b"two\n":
                    broker.stop()
                return found

        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Input(b"one\ntwo\n")))
        options = ("-X", "delivery.timeout.ms=3000", "-X", "request.timeout.ms=500", "--linger-ms", "0")
        assert run(["produce", "left-alone", *options, "--bootstrap-server", bootstrap]) == 1
        error_output = capfd.readouterr().err
        assert re.search(r"triokafka: \d records? (?:is|are) not acknowledged yet: .+; still trying", error_output), (
            error_output
        )
        assert "line 2 was not acknowledged" in error_output

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has the disk that is always full")
    def test_full_output_disk_is_one_error_line(self) -> None:
        shell = f"{sys.executable} -m triokafka protocol show FetchRequest > /dev/full"
        done = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, text=True, check=False)
        sentence = "triokafka: standard output: No space left on device. The output is incomplete.\n"
        assert (done.returncode, done.stderr) == (1, sentence)

    @pytest.mark.parametrize(
        "words", ["consume unheard --from-beginning --max-messages 1", "topics list", "topics list --json", "--version"]
    )
    def test_closed_output_is_one_error_line(self, words: str, broker: str, tool: Tool) -> None:
        """As with ``>&-`` in a shell: there is no standard output at all."""
        tool("produce", "unheard", stdin="1\n")
        address = "" if words == "--version" else f"--bootstrap-server {broker}"
        shell = f"exec {sys.executable} -m triokafka {words} {address} <&- >&-"
        done = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, text=True, check=False)
        sentence = "triokafka: standard output: Bad file descriptor. The output is incomplete."
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, sentence)

    def test_produce_needs_no_output(self, broker: str) -> None:
        shell = f"exec {sys.executable} -m triokafka produce unheard --value 1 --bootstrap-server {broker} <&- >&-"
        done = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (0, b"1 record acknowledged\n")
