"""``triokafka leader-election``, ``reassign``, ``features`` and ``log dirs`` against a broker in another process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.tool import Tool
from tests.support.waiting import until


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    process = BrokerProcess(None, settings={"offsets.topic.num.partitions": "1"})
    yield process.start()
    assert process.stop() == 0


def written(path: Path, document: object) -> str:
    path.write_text(json.dumps(document))
    return str(path)


class TestLeaderElection:
    def test_partition_with_the_right_leader_needs_no_election(self, tool: Tool, tmp_path: Path) -> None:
        tool.ok("topics", "create", "led")
        command = ("leader-election", "--election-type", "preferred")
        assert tool.ok(*command, "--topic", "led", "--partition", "0").startswith("Valid replica already elected")
        file = written(tmp_path / "p.json", {"partitions": [{"topic": "led", "partition": 0}]})
        document = json.loads(tool.ok(*command, "--path-to-json-file", file, "--json"))
        assert document == {"elected": [], "already_elected": ["led-0"], "failed": {}}
        assert "already has the leader" in tool.ok(*command, "--all-topic-partitions")

    def test_failed_election_is_status_1_and_names_the_partition(self, tool: Tool) -> None:
        done = tool("leader-election", "--election-type", "unclean", "--topic", "nowhere", "--partition", "3")
        assert done.status == 1 and "nowhere-3" in done.err

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--election-type", "preferred"),
            ("--election-type", "preferred", "--topic", "t"),
            ("--election-type", "preferred", "--topic", "t", "--partition", "0", "--all-topic-partitions"),
            ("--all-topic-partitions",),
            ("--election-type", "best", "--all-topic-partitions"),
        ],
    )
    def test_unclear_requests_are_usage_errors(self, tool: Tool, arguments: tuple[str, ...]) -> None:
        assert tool("leader-election", *arguments).status == 2

    def test_file_is_checked_before_any_request_is_sent(self, tool: Tool, tmp_path: Path) -> None:
        file = written(tmp_path / "p.json", {"partitions": [{"topic": "led", "partition": "0"}]})
        command = ("leader-election", "--election-type", "preferred", "--path-to-json-file", file)
        assert 'entry 0 of partitions: "partition" must be a number' in tool.fails(*command, status=2)


class TestReassign:
    def test_plan_for_the_only_broker_is_complete_at_once(self, tool: Tool, tmp_path: Path) -> None:
        tool.ok("topics", "create", "moved", "--partitions", "2")
        topics = written(tmp_path / "topics.json", {"version": 1, "topics": [{"topic": "moved"}]})
        command = ("reassign", "generate", "--topics-to-move-json-file", topics, "--broker-list", "1")
        document = json.loads(tool.ok(*command, "--json"))
        current, proposed = (document[name]["partitions"] for name in ("current", "proposed"))
        assert [one["replicas"] for one in current] == [one["replicas"] for one in proposed] == [[1], [1]]
        assert [one["log_dirs"] for one in current] == [["/data"]] * 2  # so that a rollback restores it
        plan = written(tmp_path / "plan.json", document["proposed"])
        executed = tool.ok("reassign", "execute", "--reassignment-json-file", plan, "--throttle", "1000")
        assert "Successfully started partition reassignments for moved-0,moved-1" in executed
        verified = tool.ok("reassign", "verify", "--reassignment-json-file", plan)
        assert (
            "Reassignment of partition moved-1 is completed." in verified
            and "Clearing topic-level throttles" in verified
        )
        assert "None of the specified" in tool.ok("reassign", "cancel", "--reassignment-json-file", plan)
        assert tool.ok("reassign", "list") == "No partition reassignments found.\n"

    def test_unknown_brokers_and_partitions_are_named(self, tool: Tool, tmp_path: Path) -> None:
        tool.ok("topics", "create", "stays")
        for entry, words in (
            ({"topic": "stays", "partition": 0, "replicas": [7]}, "there is no broker 7"),
            ({"topic": "stays", "partition": 9, "replicas": [1]}, "there is no partition stays-9"),
        ):
            plan = written(tmp_path / "plan.json", {"version": 1, "partitions": [entry]})
            assert words in tool.fails("reassign", "execute", "--reassignment-json-file", plan, status=2)


class TestFeatures:
    def test_levels_are_described(self, tool: Tool) -> None:
        lines = tool.ok("features", "describe").splitlines()
        (line,) = (line for line in lines if line.startswith("Feature: metadata.version\t"))
        assert "SupportedMinVersion: 3.3-IV3\t" in line and "FinalizedVersionLevel: 4.0-IV3\t" in line
        assert json.loads(tool.ok("features", "describe", "--json"))["group.version"]["finalized"] == 1

    def test_feature_is_lowered_disabled_and_raised_again(self, tool: Tool) -> None:
        group = ("--feature", "group.version=1")
        assert tool.ok("features", "disable", "--feature", "group.version", "--dry-run") == (
            "group.version can be disabled.\n"
        )
        assert tool.ok("features", "disable", "--feature", "group.version") == "group.version was disabled.\n"
        assert tool.ok("features", "upgrade", *group) == "group.version was upgraded to 1.\n"
        assert "metadata.version was downgraded to 24" in tool.ok("features", "downgrade", "--metadata", "4.0-IV2")
        assert "metadata.version was upgraded to 25" in tool.ok("features", "upgrade", "--metadata", "4.0")

    def test_refused_change_gives_the_reason(self, tool: Tool) -> None:
        done = tool("features", "downgrade", "--metadata", "3.9")
        assert done.status == 1 and "Could not downgrade metadata.version to 21." in done.err
        assert "might delete metadata" in done.err
        assert tool("features", "upgrade", "--metadata", "9.9").status == 2
        assert tool("features", "upgrade").status == 2

    def test_levels_of_a_release_are_known_without_a_broker(self, tool: Tool) -> None:
        from triokafka.cli.app import run

        assert run(["features", "version-mapping", "--release-version", "4.0"]) == 0


class TestLogDirs:
    def test_directories_are_listed_with_their_replicas(self, tool: Tool) -> None:
        tool.ok("topics", "create", "kept")
        document = json.loads(tool.ok("log", "dirs", "--topic-list", "kept", "--json"))
        (directory,) = document["brokers"][0]["logDirs"]
        assert directory["partitions"] == [{"partition": "kept-0", "size": 0, "offsetLag": 0, "isFuture": False}]
        assert "kept-0\t0 bytes" in tool.ok("log", "dirs", "--broker-list", "1")
        assert tool("log", "dirs", "--broker-list", "x").status == 2


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[str]:
    command = [sys.executable, "-m", "triokafka", "broker", "--nodes", "3", "--in-memory", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
        process.terminate()


def test_partitions_move_between_brokers_and_back_under_their_preferred_leaders(
    three_brokers: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = Tool(three_brokers, capfdbinary, monkeypatch)
    tool.ok("topics", "create", "moves", "--replica-assignment", "1:2,2:3")
    tool("produce", "moves", stdin="a\nb\nc\n")
    topics = written(tmp_path / "topics.json", {"version": 1, "topics": [{"topic": "moves"}]})
    command = ("reassign", "generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3", "--json")
    plan = written(tmp_path / "plan.json", json.loads(tool.ok(*command))["proposed"])
    executed = tool.ok("reassign", "execute", "--reassignment-json-file", plan, "--throttle", "10000000")
    assert "The inter-broker throttle limit was set to 10000000 B/s" in executed
    deadline = time.monotonic() + 30
    while "in progress" in (verified := tool.ok("reassign", "verify", "--reassignment-json-file", plan)):
        assert time.monotonic() < deadline, verified
    assert (
        "Reassignment of partition moves-0 is completed." in verified and "Clearing topic-level throttles" in verified
    )
    described = json.loads(tool.ok("topics", "describe", "moves", "--json"))[0]
    assert all(set(partition["isr"]) == {2, 3} for partition in described["partitions"])
    tool.ok("leader-election", "--election-type", "preferred", "--all-topic-partitions")

    def preferred_replicas_lead() -> bool:
        described = json.loads(tool.ok("topics", "describe", "moves", "--json"))[0]
        return all(partition["leader"] == partition["replicas"][0] for partition in described["partitions"])

    until(preferred_replicas_lead, "other replicas lead")  # the next broker may not have the change yet
