"""``quotas``, ``get-offsets`` and ``delete-records`` against a broker in its own process."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.command_output import next_line
from tests.support.schema_registry import schema_registry
from tests.support.tool import Tool
from triokafka.cli.app import run


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    process = BrokerProcess(None)
    yield process.start()
    assert process.stop() == 0


class TestQuotas:
    def test_quotas_are_set_described_and_removed(self, tool: Tool) -> None:
        tool.ok("quotas", "alter", "--user", "zoe", "--client", "loader", "--producer-byte-rate", "1000000")
        tool.ok("quotas", "alter", "--user-defaults", "--request-percentage", "12.5")
        tool.ok("quotas", "alter", "--ip-defaults", "--connection-creation-rate", "20")
        assert tool.ok("quotas", "describe").splitlines() == [
            "Quota configs for user-principal 'zoe', client-id 'loader' are producer_byte_rate=1000000.0",
            "Quota configs for the default user-principal are request_percentage=12.5",
            "Quota configs for the default ip are connection_creation_rate=20.0",
        ]
        assert json.loads(tool.ok("quotas", "describe", "--entity-type", "ips", "--json")) == [
            {"entity": {"ip": None}, "quotas": {"connection_creation_rate": 20.0}}
        ]
        tool.ok("quotas", "alter", "--user", "zoe", "--client", "loader", "--remove", "all")
        tool.ok("quotas", "alter", "--user-defaults", "--remove", "request-percentage")
        tool.ok("quotas", "alter", "--ip-defaults", "--remove", "connection_creation_rate")
        assert tool.ok("quotas", "describe") == ""

    def test_resolve_prints_the_effective_quota_and_its_source(self, tool: Tool) -> None:
        tool.ok("quotas", "alter", "--user", "zoe", "--producer-byte-rate", "1000")
        tool.ok("quotas", "alter", "--client-defaults", "--consumer-byte-rate", "2000")
        assert tool.ok("quotas", "resolve", "--user", "zoe", "--client", "x").splitlines() == [
            "producer_byte_rate\t1000\tfrom user-principal 'zoe'",
            "consumer_byte_rate\t2000\tfrom the default client-id",
            "request_percentage\tunlimited",
            "controller_mutation_rate\tunlimited",
        ]
        found = json.loads(tool.ok("quotas", "resolve", "--client", "x", "--json"))
        assert found["producer_byte_rate"] is None
        assert found["consumer_byte_rate"] == {"value": 2000.0, "entity": {"client-id": None}}
        assert tool.ok("quotas", "resolve", "--ip", "192.0.2.1") == "connection_creation_rate\tunlimited\n"
        tool.ok("quotas", "alter", "--user", "zoe", "--remove", "producer_byte_rate")
        tool.ok("quotas", "alter", "--client-defaults", "--remove", "consumer_byte_rate")

    def test_wrong_use_names_the_missing_options(self, tool: Tool) -> None:
        assert "Nothing to change" in tool.fails("quotas", "alter", "--user", "zoe", status=2)
        assert "No entity: give --user NAME" in tool.fails("quotas", "alter", "--producer-byte-rate", "1", status=2)
        assert "did you mean producer_byte_rate?" in tool.fails(
            "quotas", "alter", "--user", "zoe", "--remove", "producer_byterate", status=2
        )
        assert "connection_creation_rate is not a quota of user zoe" in tool.fails(
            "quotas", "alter", "--user", "zoe", "--connection-creation-rate", "1", status=2
        )
        assert "fractional" in tool.fails("quotas", "alter", "--user", "zoe", "--producer-byte-rate", "1.5")

    def test_dry_run_changes_nothing(self, tool: Tool) -> None:
        tool.ok("quotas", "alter", "--user", "zoe", "--producer-byte-rate", "1", "--dry-run")
        assert tool.ok("quotas", "describe") == ""


@pytest.fixture(scope="module")
def topics(broker: str) -> None:
    """Create the topic gauge with three records in its partition 1, and gauge2 without records."""
    for topic in ("gauge", "gauge2"):
        assert run(["topics", "create", topic, "--partitions", "2", "-b", broker]) == 0
    for value in ("one", "two", "three"):
        assert run(["produce", "gauge", "--partition", "1", "--value", value, "-b", broker]) == 0


class TestNodes:
    def test_brokers_are_listed_with_their_state(self, tool: Tool) -> None:
        titles, row = (line.split() for line in tool.ok("nodes", "list", "--include-fenced-brokers").splitlines())
        assert titles == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
        (shown,) = json.loads(tool.ok("nodes", "list", "--json"))
        assert row == [str(shown["id"]), shown["host"], str(shown["port"]), "null", "unfenced", "broker"]
        assert f"{shown['host']}:{shown['port']}" == tool.bootstrap and shown["rack"] is None
        found = json.loads(tool.ok("nodes", "cluster-id", "--json"))["cluster_id"]
        assert tool.ok("nodes", "cluster-id") == f"Cluster ID: {found}\n" and len(found) == 22

    def test_unregistered_broker_is_one_error_line(self, tool: Tool) -> None:
        assert "broker 77" in tool.fails("nodes", "unregister", "--id", "77")
        assert "--id" in tool.fails("nodes", "unregister", status=2)


class TestCredentials:
    """Credentials of users are part of their configuration, as in kafka-configs."""

    def test_credentials_are_set_described_and_removed(self, tool: Tool) -> None:
        secret = "SCRAM-SHA-256=[iterations=8192,password=dolphin]"
        tool.ok("configs", "alter", "--user", "ida", "--add-config", f"{secret},producer_byte_rate=5")
        shown = [
            "Quota configs for user-principal 'ida' are producer_byte_rate=5.0",
            "SCRAM credential configs for user-principal 'ida' are SCRAM-SHA-256=iterations=8192",
        ]
        for whom in (["--user", "ida"], ["--entity-type", "users"]):
            assert tool.ok("configs", "describe", *whom).splitlines() == shown
        assert json.loads(tool.ok("configs", "describe", "--user", "ida", "--json"))[1] == {
            "entity": {"user": "ida"}, "scram": {"SCRAM-SHA-256": 8192}
        }  # fmt: skip
        tool.ok("configs", "alter", "--user", "ida", "--delete-config", "SCRAM-SHA-256,producer_byte_rate")
        assert tool.ok("configs", "describe", "--entity-type", "users") == ""

    @pytest.mark.parametrize(
        ("entity", "config", "problem"),
        [
            (["--user", "ida"], "SCRAM-SHA-256=[password=]", "the password is missing"),
            (["--user", "ida"], "SCRAM-SHA-256=[iterations=1,password=dolphin]", "iterations are 4096"),
            (["--user", "ida"], "SCRAM-SHA-256=dolphin", "takes [iterations=NUMBER"),
            (["--client", "x"], "SCRAM-SHA-256=[password=dolphin]", "configurations of one user"),
            (["--user-defaults"], "SCRAM-SHA-256=[password=dolphin]", "configurations of one user"),
        ],
    )
    def test_wrong_credentials_are_usage_errors_without_the_password(
        self, tool: Tool, entity: list[str], config: str, problem: str
    ) -> None:
        error = tool.fails("configs", "alter", *entity, "--add-config", config, status=2)
        assert problem in error and "dolphin" not in error


@pytest.mark.usefixtures("topics")
class TestOffsets:
    def test_offsets_are_lines_of_topic_partition_and_offset(self, tool: Tool) -> None:
        assert tool.ok("get-offsets", "--topic", "gauge.*").splitlines() == [
            "gauge:0:0",
            "gauge:1:3",
            "gauge2:0:0",
            "gauge2:1:0",
        ]
        assert tool.ok("get-offsets", "--topic-partitions", "gauge:1-", "--time", "-2") == "gauge:1:0\n"
        assert tool.ok("get-offsets", "--topic", "gauge", "--time", "max-timestamp") == "gauge:1:2\n"
        assert (
            tool.ok("get-offsets", "--topic", "gauge", "--partitions", "1", "--time", "earliest-local") == "gauge:1:0\n"
        )
        assert tool.ok("get-offsets", "--topic", "gauge", "--time", "latest-tiered") == ""
        assert tool.ok("get-offsets", "--topic", "gauge", "--time", "1000") == "gauge:1:0\n"
        assert json.loads(tool.ok("get-offsets", "--topic", "gauge", "--time", "0", "--json")) == [
            {"topic": "gauge", "partition": 1, "offset": 0}
        ]

    def test_filters_that_match_nothing_fail(self, tool: Tool) -> None:
        assert "no partition matches" in tool.fails("get-offsets", "--topic", "nothing")
        assert "cannot be used with" in tool.fails("get-offsets", "--topic", "a", "--topic-partitions", "b", status=2)
        assert "--time takes" in tool.fails("get-offsets", "--time", "yesterday", status=2)

    def test_records_before_an_offset_are_deleted(self, tool: Tool, tmp_path: Path) -> None:
        file = tmp_path / "offsets.json"
        asked = [{"topic": "gauge", "partition": 1, "offset": 2}]
        file.write_text(json.dumps({"partitions": asked, "version": 1}))
        shown = tool.ok("delete-records", "--offset-json-file", str(file), "--dry-run")
        assert shown == "partition: gauge-1\tlog: 0 to 3\twould delete 2 offsets\n"
        shown = tool.ok("delete-records", "--offset-json-file", str(file))
        assert shown.splitlines() == [
            "Executing records delete operation",
            "Records delete operation completed:",
            "partition: gauge-1\tlow_watermark: 2",
        ]
        assert tool.ok("get-offsets", "--topic", "gauge", "--partitions", "1", "--time", "earliest") == "gauge:1:2\n"

    def test_partition_that_fails_does_not_stop_the_others(self, tool: Tool, tmp_path: Path) -> None:
        file = tmp_path / "offsets.json"
        asked = [{"topic": "gauge2", "partition": number, "offset": offset} for number, offset in ((0, -1), (1, 99))]
        file.write_text(json.dumps({"partitions": asked}))
        done = tool("delete-records", "--offset-json-file", str(file))
        assert done.status == 1
        lines = done.out.splitlines()[2:]
        assert lines[0] == "partition: gauge2-0\tlow_watermark: 0"
        assert lines[1].startswith("partition: gauge2-1\terror: ")

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ('{"partitions": [], "version": 1}', "at least one entry"),
            ('{"partitions": [{"topic": "t", "partition": 0}]}', '"offset" must be a number'),
            ('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}], "version": 2}', "reads version 1"),
            ("nonsense", "is not JSON"),
        ],
    )
    def test_unreadable_files_are_usage_errors(self, tool: Tool, tmp_path: Path, text: str, problem: str) -> None:
        file = tmp_path / "offsets.json"
        file.write_text(text)
        assert problem in tool.fails("delete-records", "--offset-json-file", str(file), status=2)

    def test_partition_named_twice_is_a_usage_error(self, tool: Tool, tmp_path: Path) -> None:
        file = tmp_path / "offsets.json"
        entry = {"topic": "gauge", "partition": 0, "offset": 0}
        file.write_text(json.dumps({"partitions": [entry, entry]}))
        assert "duplicate topic partitions: gauge-0" in tool.fails(
            "delete-records", "--offset-json-file", str(file), status=2
        )


class TestNothingFound:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ("list --state Ongoing", "No transactional ids found.\n"),
            ("find-hanging --topic idle", "No hanging transactions found.\n"),
            ("describe-producers --topic idle --partition 0", "No producers found in idle-0.\n"),
        ],
    )
    def test_sentence_replaces_a_table_without_rows(self, words: str, sentence: str, tool: Tool) -> None:
        tool("topics", "create", "idle", "--if-not-exists")
        assert tool("transactions", *words.split()) == (0, "", sentence)
        assert tool.ok("transactions", *words.split(), "--json") == "[]\n"

    def test_broker_that_does_not_exist_leads_no_partition(self, tool: Tool) -> None:
        words = ("transactions", "find-hanging", "--broker-id", "77")
        assert tool.fails(*words) == "triokafka: broker 77 is not in the cluster, which has the brokers: 1"

    def test_missing_authorizer_is_one_error_line(self, tool: Tool) -> None:
        for words in ("add --allow-principal User:a --producer", "remove --allow-principal User:a --producer --yes"):
            assert tool.fails("acls", *words.split(), "--topic", "idle") == (
                "triokafka: ACLs: No Authorizer is configured. Configure an authorizer before managing ACLs."
            )


class TestFormats:
    """Keys and values of ``produce`` and ``consume``."""

    def test_lines_are_read_and_written_in_a_format(self, tool: Tool) -> None:
        tool.ok("topics", "create", "kcat", "--partitions", "2")
        lines = "k1;1;17;a=1;one\nk2;0;18;;two;too\n"
        tool.ok("produce", "kcat", "-f", r"%k;%p;%T;%h;%s\n", stdin=lines)
        for partition, line in ((1, "k1 1 17 a=1 one 2 3 0 kcat"), (0, "k2 0 18  two;too 2 7 0 kcat")):
            shown = tool.ok(
                "consume", "kcat", "--partition", str(partition), "--offset", "earliest", "--max-messages", "1",
                "-f", r"%k %p %T %h %s %K %S %o %t\n",
            )  # fmt: skip
            assert shown == line + "\n"
        assert "no ';' where the format has it" in tool.fails("produce", "kcat", "-f", "%k;%s", stdin="nothing\n")
        assert "--format excludes" in tool.fails("consume", "kcat", "-f", "%s", "--json", status=2)

    def test_start_and_end_are_given_as_in_kcat(self, tool: Tool) -> None:
        tool.ok("topics", "create", "ends", "--partitions", "2")
        for partition in ("0", "1"):
            lines = "".join(f"{partition}-{number}\n" for number in range(5))
            tool.ok("produce", "ends", "--partition", partition, "--timestamp", "1700000000000", stdin=lines)
        tool.ok("produce", "ends", "--partition", "0", "--timestamp", "1700000009000", "--value", "late")

        def read(*options: str) -> list[str]:
            return sorted(tool.ok("consume", "ends", "--until-end", *options).splitlines())

        assert len(read("--from-beginning")) == 11
        assert read("--offset", "-2") == ["0-4", "1-3", "1-4", "late"]
        assert read("--offset", "3") == ["0-3", "0-4", "1-3", "1-4", "late"]
        assert read("--offset", "s@1700000000001") == ["late"]
        assert read("--partition", "1", "--offset", "beginning", "--max-messages", "1") == ["1-0"]
        assert read("--offset", "end") == []
        assert len(read("--group", "kcat", "--from-beginning")) == 11

        done = tool("consume", "ends", "--partition", "1", "--offset", "99", "-e")
        assert (done.status, done.out) == (0, "")
        assert "offset 99 is after the end of ends-1, 5: only new records are printed" in done.err
        assert "needs --partition" in tool.fails("consume", "ends", "--offset", "1", "--group", "g", status=2)
        assert "s@MS for a time, not 'now'" in tool.fails("consume", "ends", "--offset", "now", status=2)

    def test_records_may_be_files_and_nulls_and_end_with_any_text(self, tool: Tool, tmp_path: Path) -> None:
        file = tmp_path / "two.lines"
        file.write_bytes(b"1\r\n2\r\n")
        tool.ok("topics", "create", "odd")
        tool.ok("produce", "odd", "--value-file", str(file))
        tool.ok("produce", "odd", "-D", "||", "--null", "", "--key-separator", ":", stdin="k:a\nb||:||c||")
        read = ["consume", "odd", "--from-beginning", "-e"]
        assert tool.ok(*read, "-f", r"%k|%S|%s\n", "--null", "~") == "~|6|1\r\n2\r\n\nk|3|a\nb\n~|-1|~\n~|1|c\n"
        assert tool.ok(*read, "--key-separator", "=", "--null", "NULL").splitlines()[-2:] == ["NULL=NULL", "NULL=c"]
        assert json.loads(tool.ok(*read, "--formatter", "kcat-json").splitlines()[2])["payload"] is None
        assert "two.lines.gone cannot be read" in tool.fails("produce", "odd", "--value-file", f"{file}.gone", status=2)

    def test_waiting_for_a_silent_schema_registry_is_reported_and_interrupted_at_once(self, tool: Tool) -> None:
        tool.ok("topics", "create", "registered")
        tool.ok("produce", "registered", "--value", "00000000017b7d", "--value-format", "hex")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            where = ["--schema-registry", f"http://127.0.0.1:{silent.getsockname()[1]}", "--value-format", "registry"]
            for words in (["produce", "registered", *where, "--value", "{}"],
                          ["consume", "registered", *where, "--from-beginning"]):  # fmt: skip
                process = tool.start(*words)
                assert next_line(process.stderr).startswith(b"triokafka: waiting for the schema registry http://127")
                process.send_signal(signal.SIGINT)
                began = time.monotonic()
                assert process.wait(30) == 130
                assert time.monotonic() - began < 8  # the registry has a time limit of ten seconds
                process.communicate()

    def test_packed_numbers_and_java_classes(self, tool: Tool) -> None:
        long = "org.apache.kafka.common.serialization.LongSerializer"
        tool.ok("topics", "create", "packed")
        tool.ok("produce", "packed", "--key", "-7", "--value", "00ff", "--key-format", long, "--value-format", "hex")
        read = ["consume", "packed", "--from-beginning", "--max-messages", "1"]
        shown = tool.ok(*read, "--key-format", "pack:>q", "--value-format", "base64", "-f", "%k %s|")
        assert shown == "-7 AP8=|"
        shown = tool.ok(
            *read, "--property", "print.key=true", "--key-deserializer", long.replace("Serializer", "Deserializer"),
            "--value-format", "hex",
        )  # fmt: skip
        assert shown == "-7\t00ff\n"
        assert "cannot be encoded" in tool.fails("produce", "packed", "--value", "zz", "--value-format", "hex")

    def test_avro_by_a_schema_registry(self, tool: Tool, tmp_path: Path) -> None:
        fields = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}]
        file = tmp_path / "order.avsc"
        file.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
        tool.ok("topics", "create", "avro")
        with schema_registry() as registry:
            where = ["--schema-registry", registry.url, "--value-format"]
            tool.ok("produce", "avro", *where, "avro", "--value-schema", str(file), stdin='{"id": 1}\n')
            tool.ok("produce", "avro", *where, "registry", "--value", '{"id": 2, "note": "x"}')
            assert "lacks the field 'id'" in tool.fails("produce", "avro", *where, "registry", stdin="{}\n")
            read = ["consume", "avro", "--from-beginning", "--max-messages", "2", *where, "registry"]
            assert tool.ok(*read).splitlines() == ['{"id": 1, "note": null}', '{"id": 2, "note": "x"}']
            values = [json.loads(line)["value"] for line in tool.ok(*read, "--json").splitlines()]
            assert values == [{"id": 1, "note": None}, {"id": 2, "note": "x"}]
        assert "needs --schema-registry" in tool.fails("consume", "avro", "--value-format", "avro", status=2)
        unreachable = ("--schema-registry", "http://127.0.0.1:1", "--value-format", "registry")
        silent = tool("produce", "avro", *unreachable, stdin="{}\n")
        assert silent.status == 1
        assert "line 1 cannot be encoded: http://127.0.0.1:1/subjects/avro-value" in silent.err
        assert "Connection refused. Check the registry's address and credentials" in silent.err


class TestEndToEnd:
    def test_latencies_are_reported_as_by_kafka(self, tool: Tool) -> None:
        shown = tool.ok("perf", "end-to-end", "--topic", "latency", "--num-records", "20").splitlines()
        assert shown[0].startswith("0\t")
        assert shown[1].startswith("Avg latency: ") and shown[1].endswith(" ms")
        assert re.fullmatch(r"Percentiles: 50th = [0-9.]+, 99th = [0-9.]+, 99.9th = [0-9.]+", shown[2])
        sizes = ["--record-key-size", "5", "--num-headers", "2", "--record-size", "10", "--acks", "1"]
        found = json.loads(tool.ok("perf", "end-to-end", "--topic", "latency", "--num-records", "5", *sizes, "--json"))
        assert found["records"] == 5
        assert 0 < found["p50_ms"] <= found["max_ms"]
        read = ["consume", "latency", "--partition", "0", "--offset", "24", "--max-messages", "1"]
        assert re.fullmatch(r"5 10 (\w{4}=\w{4},?){2}", tool.ok(*read, "-f", "%K %S %h"))
