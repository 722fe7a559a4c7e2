"""``triokafka groups`` against a broker in its own process, with members of both protocols."""

from __future__ import annotations

import csv
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from tests.support.tool import Tool
from triokafka.cli.app import run

RESET = ("groups", "reset-offsets")


def filled(tool: Tool, topic: str, *, records: int = 10, partitions: int = 1) -> None:
    """Create a topic with records, all in partition 0."""
    tool.ok("topics", "create", topic, "--partitions", "1")
    tool("produce", topic, stdin="".join(f"{number}\n" for number in range(records)))
    if partitions > 1:
        tool.ok("topics", "alter", topic, "--partitions", str(partitions))


def consumed(tool: Tool, topic: str, group: str, records: int) -> None:
    """Create a group that has read and committed so many records, and has no members."""
    read = tool.ok("consume", topic, "--group", group, "--from-beginning", "--max-messages", str(records))
    assert len(read.splitlines()) == records


@contextmanager
def member(tool: Tool, topic: str, group: str, *more: str) -> Iterator[None]:
    """Run a classic member in its own process; enter the block after its first record."""
    process = tool.start("consume", topic, "--group", group, "--from-beginning", *more)
    assert process.stdout is not None
    try:
        assert process.stdout.readline()
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@contextmanager
def new_member(tool: Tool, topic: str, group: str) -> Iterator[None]:
    """Run a member under the consumer protocol (KIP-848); enter the block after its first record."""
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": tool.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "client.id": "new-one",
        }
    )
    try:
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        yield
    finally:
        consumer.close()


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of a table without empty cells, by title."""
    lines = [line.split() for line in text.splitlines() if line]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def offsets(tool: Tool, group: str) -> dict[tuple[str, int], int]:
    rows = json.loads(tool.ok("groups", "offsets", group, "--json"))
    return {(row["topic"], row["partition"]): row["offset"] for row in rows}


class TestLooking:
    def test_groups_are_listed_and_filtered_by_state_and_type(self, tool: Tool) -> None:
        filled(tool, "ls")
        consumed(tool, "ls", "ls-empty", 3)
        with member(tool, "ls", "ls-live"), new_member(tool, "ls", "ls-new"):
            assert {"ls-empty", "ls-live", "ls-new"} <= set(tool.ok("groups", "list").splitlines())
            rows = {row["GROUP"]: row for row in table(tool.ok("groups", "list", "--state", "--type"))}
            assert rows["ls-empty"] == {"GROUP": "ls-empty", "TYPE": "Classic", "STATE": "Empty"}
            assert rows["ls-live"] == {"GROUP": "ls-live", "TYPE": "Classic", "STATE": "Stable"}
            assert rows["ls-new"] == {"GROUP": "ls-new", "TYPE": "Consumer", "STATE": "Stable"}
            stable = {row["GROUP"] for row in table(tool.ok("groups", "list", "--state", "stable,Dead"))}
            assert {"ls-live", "ls-new"} <= stable and "ls-empty" not in stable
            assert [row["GROUP"] for row in table(tool.ok("groups", "list", "--type", "consumer"))] == ["ls-new"]
            (found,) = [row for row in json.loads(tool.ok("groups", "list", "--json")) if row["group"] == "ls-new"]
            assert found == {"group": "ls-new", "protocol": "consumer", "type": "consumer", "state": "Stable"}
            with_protocol = table(tool.ok("groups", "list", "--all-protocols"))
            assert {"GROUP": "ls-live", "PROTOCOL": "consumer"} in with_protocol
            assert {"GROUP": "ls-live", "PROTOCOL": "consumer"} in table(
                tool.ok("groups", "list", "--protocol", "consumer")
            )
            assert table(tool.ok("groups", "list", "--protocol", "connect")) == []
            assert "ls-live" in tool.ok("groups", "list", "--consumer").splitlines()
            newer = table(tool.ok("groups", "list", "--group-type", "consumer"))
            assert newer == [{"GROUP": "ls-new", "TYPE": "Consumer"}]
        assert table(tool.ok("groups", "list", "--streams")) == []
        assert "exclude" in tool.fails("groups", "list", "--consumer", "--all-protocols", status=2)
        assert "exclude" in tool.fails("groups", "list", "--share", "--type", "classic", status=2)
        assert "'bogus' is not one of" in tool.fails("groups", "list", "--state", "bogus", status=2)
        assert "is not one of Consumer, Classic" in tool.fails("groups", "list", "--type", "new", status=2)

    def test_lag_is_shown_by_partition_with_its_member(self, tool: Tool) -> None:
        filled(tool, "lag", partitions=2)
        consumed(tool, "lag", "lag-g", 4)
        done = tool("groups", "describe", "lag-g")
        assert (done.status, done.err) == (0, "Note: group lag-g has no members now.\n")
        rows = table(done.out)
        assert [tuple(row.values()) for row in rows] == [
            ("lag-g", "lag", "0", "4", "10", "6", "-", "-", "-"),
            ("lag-g", "lag", "1", "0", "0", "0", "-", "-", "-"),
        ]
        with member(tool, "lag", "lag-g"):
            done = tool("groups", "describe", "lag-g", "--verbose")
            assert (done.status, done.err) == (0, "")
            zero, one = table(done.out)
            assert zero["CONSUMER-ID"].startswith("console-consumer-")
            assert (zero["LOG-END-OFFSET"], zero["HOST"], zero["CLIENT-ID"], zero["LEADER-EPOCH"]) == (
                "10", "/127.0.0.1", "console-consumer", "0",
            )  # fmt: skip
            assert one["LEADER-EPOCH"] == "0"  # of the start of an empty log, where the epoch of its first leader began

    def test_missing_commit_is_a_hyphen_and_unowned_partitions_are_listed(self, tool: Tool) -> None:
        filled(tool, "part", partitions=3)
        tool.ok(*RESET, "part-g", "--topic", "part:2", "--to-latest", "--execute")
        filled(tool, "other")
        with new_member(tool, "part", "part-new"):
            first, *rest = table(tool.ok("groups", "describe", "part-new"))
            assert (first["CURRENT-OFFSET"], first["LAG"]) == ("-", "-")
            assert [row["CONSUMER-ID"] for row in rest] == [first["CONSUMER-ID"]] * 2
        (row,) = table(tool.ok("groups", "describe", "part-g"))
        assert (row["PARTITION"], row["CURRENT-OFFSET"], row["CONSUMER-ID"]) == ("2", "0", "-")

    def test_members_and_state_of_both_protocols(self, tool: Tool) -> None:
        filled(tool, "mem", partitions=2)
        static = ("-X", "group.instance.id=desk-7")
        with member(tool, "mem", "mem-old", *static), new_member(tool, "mem", "mem-new"):
            (old,) = table(tool.ok("groups", "members", "mem-old", "--verbose"))
            assert (old["GROUP-INSTANCE-ID"], old["#PARTITIONS"], old["CURRENT-ASSIGNMENT"]) == (
                "desk-7", "2", "mem:0,1",
            )  # fmt: skip
            assert (old["CURRENT-EPOCH"], old["TARGET-EPOCH"], old["TARGET-ASSIGNMENT"]) == ("-", "-", "-")
            (new,) = table(tool.ok("groups", "describe", "mem-new", "--members", "--verbose"))
            assert (new["CURRENT-EPOCH"], new["TARGET-EPOCH"]) == ("1", "1")
            assert new["CURRENT-ASSIGNMENT"] == new["TARGET-ASSIGNMENT"] == "mem:0,1"
            assert "UPGRADED" not in new and "GROUP-INSTANCE-ID" not in new
            (row,) = json.loads(tool.ok("groups", "members", "mem-new", "--json"))
            (found,) = row["members"]
            assert (found["client_id"], found["assignment"], found["upgraded"]) == ("new-one", {"mem": [0, 1]}, True)
            states = tool.ok("groups", "describe", "mem-old", "mem-new", "--state", "--verbose").splitlines()
            port = tool.bootstrap.rpartition(":")[2]
            assert [line.split() for line in states[1:]] == [
                ["mem-old", f"127.0.0.1:{port}", "(1)", "range", "Stable", "-", "-", "1"],
                ["mem-new", f"127.0.0.1:{port}", "(1)", "uniform", "Stable", "1", "1", "1"],
            ]
            (state,) = json.loads(tool.ok("groups", "describe", "mem-new", "--state", "--json"))
            assert (state["type"], state["group_epoch"], state["member_count"]) == ("consumer", 1, 1)
        done = tool("groups", "members", "mem-new")
        assert (done.status, done.err) == (0, "Note: group mem-new has no members now.\n")

    def test_member_on_the_classic_protocol_is_reported(self, tool: Tool) -> None:
        """KIP-848, KIP-1099: the group is changing from one protocol to the other."""
        filled(tool, "up", partitions=2)
        options: dict[str, Any] = {"bootstrap.servers": tool.bootstrap, "group.id": "up-g"}
        old = ConfluentConsumer({**options, "client.id": "old"})
        new = ConfluentConsumer({**options, "client.id": "new", "group.protocol": "consumer"})
        try:
            for consumer in (old, new):
                consumer.subscribe(["up"])
                while not consumer.assignment():
                    old.poll(0.1)
                    new.poll(0.1)
            rows = table(tool.ok("groups", "members", "up-g", "--verbose"))
            assert {row["CLIENT-ID"]: row["UPGRADED"] for row in rows} == {"old": "false", "new": "true"}
            assert {row["CURRENT-ASSIGNMENT"] for row in rows} == {"up:0", "up:1"}
        finally:
            new.close()
            old.close()

    def test_committed_offsets_are_shown_as_they_are(self, tool: Tool) -> None:
        filled(tool, "pos-a")
        filled(tool, "pos-b")
        for topic in ("pos-a", "pos-b"):
            tool.ok(*RESET, "pos-g", "--topic", topic, "--to-offset", "3", "--execute")
        rows = json.loads(tool.ok("groups", "offsets", "pos-g", "--json"))
        assert [(row["topic"], row["offset"], row["metadata"]) for row in rows] == [("pos-a", 3, ""), ("pos-b", 3, "")]
        only = tool.ok("groups", "offsets", "pos-g", "--topic", "pos-b").splitlines()
        assert [line.split() for line in only[1:]] == [["pos-g", "pos-b", "0", "3", "-"]]
        done = tool("groups", "offsets", "pos-g", "--topic", "nothing")
        assert (done.status, done.out, done.err) == (0, "", "Note: no committed offsets.\n")

    def test_describing_a_group_does_not_disturb_it(self, tool: Tool) -> None:
        """No member joins or leaves, and nothing is committed: the group stays in its first generation."""
        filled(tool, "calm", partitions=2)
        with member(tool, "calm", "calm-g", "-X", "enable.auto.commit=false"):
            before = table(tool.ok("groups", "members", "calm-g"))
            for flags in ([], ["--members", "--verbose"], ["--state"], ["--all-groups"]):
                groups = [] if flags == ["--all-groups"] else ["calm-g"]
                tool.ok("groups", "describe", *groups, *flags)
            tool.ok("groups", "offsets", "calm-g")
            tool.fails(*RESET, "calm-g", "--topic", "calm", "--to-earliest")
            assert table(tool.ok("groups", "members", "calm-g")) == before
            assert offsets(tool, "calm-g") == {}
            output = tool.ok(
                "consume", "__consumer_offsets", "--from-beginning", "--timeout-ms", "300",
                "--formatter", "group-metadata",
            )  # fmt: skip
            found = [json.loads(line) for line in output.splitlines()]
            generations = {
                one["value"]["data"]["generation"] for one in found if one["key"]["data"]["group"] == "calm-g"
            }
            assert generations == {0, 1}  # at its creation, and after its member had joined

    def test_missing_group_is_one_error_line_and_the_others_are_shown(self, tool: Tool) -> None:
        filled(tool, "some")
        consumed(tool, "some", "some-g", 1)
        for view in ([], ["--members"], ["--state"]):
            assert "consumer group 'nobody' does not exist" in tool.fails("groups", "describe", "nobody", *view)
        done = tool("groups", "describe", "nobody", "some-g")
        assert done.status == 1 and "some-g" in done.out
        assert tool("groups", "describe", "nobody", "--json").out == "[]\n"
        assert "consumer group 'nobody' does not exist" in tool.fails("groups", "offsets", "nobody")

    def test_topic_that_was_deleted_has_no_known_end(self, tool: Tool) -> None:
        filled(tool, "brief")
        filled(tool, "stays")
        for topic in ("brief", "stays"):
            tool.ok(*RESET, "brief-g", "--topic", topic, "--to-latest", "--execute")
        tool.ok("topics", "delete", "brief")
        rows = {row["TOPIC"]: row for row in table(tool.ok("groups", "describe", "brief-g"))}
        assert (rows["stays"]["LOG-END-OFFSET"], rows["stays"]["LAG"]) == ("10", "0")
        assert "brief" not in rows or rows["brief"]["LOG-END-OFFSET"] == rows["brief"]["LAG"] == "unknown"

    def test_wrong_use_is_one_sentence(self, tool: Tool) -> None:
        for flags, words in (
            (["describe"], "No groups: give their names, or --all-groups."),
            (["describe", "g", "--all-groups"], "No groups"),
            (["describe", ""], "group id is empty"),
            (["describe", "g", "--members", "--state"], "exclude each other"),
            (["describe", "g", "--timeout", "0"], "--timeout"),
            (["descibe", "g"], "Did you mean 'describe'"),
            (["members"], "No groups"),
            (["offsets"], "No groups"),
            (["delete"], "No groups"),
            (["delete-offsets", "g"], "--topic"),
            (["delete-offsets", "g", "--topic", "t:x"], "--topic takes a topic"),
            (["list", "--no-such-flag"], "--no-such-flag"),
        ):
            assert words in tool.fails("groups", *flags, status=2), flags


class TestResetting:
    def test_every_reset_option_sets_its_offset(self, tool: Tool) -> None:
        filled(tool, "ways")
        times = tool.ok(
            "consume", "ways", "--from-beginning", "--max-messages", "10",
            "--property", "print.timestamp=true", "--property", "print.value=false",
        )  # fmt: skip
        assert times.startswith("CreateTime:")
        reset = (*RESET, "ways-g", "--topic", "ways", "--execute")
        for way, offset in (
            (["--to-latest"], 10),
            (["--to-earliest"], 0),
            (["--to-offset", "7"], 7),
            (["--shift-by", "-3"], 4),
            (["--shift-by", "2"], 6),
            (["--to-current"], 6),
            (["--by-duration", "PT1H"], 0),
            (["--by-duration", "P36500D"], 0),
            (["--to-datetime", "1960-01-01T00:00:00.000"], 0),
            (["--to-datetime", "2020-01-01T00:00:00.000"], 0),
        ):
            done = tool(*reset, *way)
            assert (done.status, done.err) == (0, ""), (way, done)
            (row,) = table(done.out)
            assert row == {"GROUP": "ways-g", "TOPIC": "ways", "PARTITION": "0", "NEW-OFFSET": str(offset)}
            assert offsets(tool, "ways-g") == {("ways", 0): offset}, way
        assert tool.ok("consume", "ways", "--group", "ways-g", "--max-messages", "10").splitlines()[0] == "0"

    def test_time_after_the_last_record_means_the_log_end_and_is_reported(self, tool: Tool) -> None:
        filled(tool, "late")
        for way in (["--to-datetime", "2100-01-01T00:00:00.000"], ["--by-duration", "PT-1H"]):
            done = tool(*RESET, "late-g", "--topic", "late", *way, "--dry-run")
            assert table(done.out)[0]["NEW-OFFSET"] == "10"
            assert "no record is that recent in late-0: using the log end offset" in done.err

    def test_offset_outside_the_log_is_clamped_and_reported(self, tool: Tool) -> None:
        filled(tool, "clamp")
        reset = (*RESET, "clamp-g", "--topic", "clamp", "--execute")
        done = tool(*reset, "--to-offset", "1000")
        assert done.err == "Note: 1000 is after the end of clamp-0: using 10.\n"
        assert offsets(tool, "clamp-g") == {("clamp", 0): 10}
        done = tool(*reset, "--shift-by", "-500")
        assert "-490 is before the beginning of clamp-0: using 0." in done.err
        assert "-5 is before" in tool(*reset, "--to-offset", "-5").err

    def test_nothing_changes_without_execute(self, tool: Tool) -> None:
        filled(tool, "dry")
        tool.ok(*RESET, "dry-g", "--topic", "dry", "--to-offset", "5", "--execute")
        done = tool(*RESET, "dry-g", "--topic", "dry", "--to-earliest")
        assert done.status == 0 and done.err == "Note: nothing was changed. Add --execute to change the offsets.\n"
        assert table(done.out)[0]["NEW-OFFSET"] == "0"
        assert tool(*RESET, "dry-g", "--topic", "dry", "--to-earliest", "--dry-run").err == ""
        assert offsets(tool, "dry-g") == {("dry", 0): 5}

    def test_partitions_and_topics_are_chosen(self, tool: Tool) -> None:
        for topic in ("pick-a", "pick-b"):
            filled(tool, topic, partitions=3)
        some = ("--topic", "pick-a:0,2", "--topic", "pick-b")
        tool.ok(*RESET, "pick-g", *some, "--to-latest", "--execute")
        assert offsets(tool, "pick-g") == {
            ("pick-a", 0): 10, ("pick-a", 2): 0, ("pick-b", 0): 10, ("pick-b", 1): 0, ("pick-b", 2): 0,
        }  # fmt: skip
        rows = json.loads(tool.ok(*RESET, "pick-g", "--all-topics", "--to-earliest", "--json"))
        assert {(row["topic"], row["partition"], row["new_offset"]) for row in rows} == {
            ("pick-a", 0, 0), ("pick-a", 2, 0), ("pick-b", 0, 0), ("pick-b", 1, 0), ("pick-b", 2, 0),
        }  # fmt: skip

    def test_exported_plan_is_read_from_a_file(self, tool: Tool, tmp_path: Path) -> None:
        filled(tool, "file", partitions=2)
        tool.ok(*RESET, "file-g", "--topic", "file", "--to-latest", "--execute")
        tool.ok(*RESET, "file-h", "--topic", "file:0", "--to-offset", "4", "--execute")
        current = ("--all-topics", "--to-current", "--export", "--dry-run")
        one = tmp_path / "one.csv"
        one.write_text(tool.ok(*RESET, "file-g", *current))
        assert list(csv.reader(one.open())) == [["file", "0", "10"], ["file", "1", "0"]]
        two = tmp_path / "two.csv"
        two.write_text(tool.ok(*RESET, "file-g", "file-h", *current))
        assert "file-h,file,0,4\n" in two.read_text()
        tool.ok(*RESET, "file-g", "file-h", "--topic", "file", "--to-earliest", "--execute")
        tool.ok(*RESET, "file-g", "file-h", "--from-file", str(two), "--execute")
        assert (offsets(tool, "file-g")["file", 0], offsets(tool, "file-h")["file", 0]) == (10, 4)
        tool.ok(*RESET, "file-h", "--from-file", str(one), "--execute")
        assert offsets(tool, "file-h")["file", 0] == 10
        assert "has no offsets of group 'file-i'" in tool.fails(*RESET, "file-i", "--from-file", str(two))
        one.write_text("file,0\n")
        assert "one.csv, line 1" in tool.fails(*RESET, "file-g", "--from-file", str(one), status=2)

    def test_group_with_members_is_refused_and_the_others_are_reset(self, tool: Tool) -> None:
        filled(tool, "busy")
        with member(tool, "busy", "busy-g"), new_member(tool, "busy", "busy-new"):
            done = tool(*RESET, "busy-g", "busy-new", "busy-free", "--topic", "busy", "--to-offset", "5", "--execute")
            assert done.status == 1
            assert [row["GROUP"] for row in table(done.out)] == ["busy-free"]
            assert done.err.splitlines() == [
                f"triokafka: group '{name}' is Stable. Stop its members before resetting offsets."
                for name in ("busy-g", "busy-new")
            ]

    def test_wrong_reset_is_one_sentence_and_changes_nothing(self, tool: Tool) -> None:
        filled(tool, "bad")
        reset = (*RESET, "bad-g")
        for flags, words in (
            (["--to-earliest"], "--topic or --all-topics"),
            (["--topic", "bad"], "No target: give one of"),
            (["--topic", "bad", "--to-earliest", "--to-offset", "1"], "exclude each other"),
            (["--topic", "bad", "--all-topics", "--to-earliest"], "--topic or --all-topics"),
            (["--topic", "bad", "--to-earliest", "--execute", "--dry-run"], "exclude each other"),
            (["--topic", "bad", "--to-offset", "soon"], "--to-offset"),
            (["--topic", "bad", "--to-datetime", "soon"], "--to-datetime takes"),
            (["--topic", "bad", "--by-duration", "1h"], "--by-duration takes"),
            (["--topic", "bad:x", "--to-earliest"], "--topic takes"),
            (["--from-file", "/no/such/file"], "cannot be read"),
            (["--from-file", "/no/such/file", "--all-topics"], "excludes --topic and --all-topics"),
            (["--topic", "bad", "--to-earliest", "--export", "--json"], "excludes --json"),
        ):
            assert words in tool.fails(*reset, *flags, status=2), flags
        execute = (*reset, "--execute")
        assert "does not have this topic" in tool.fails(*execute, "--topic", "nowhere", "--to-earliest")
        assert "no such partition" in tool.fails(*execute, "--topic", "bad:0,9", "--to-earliest")
        assert "no committed offset to shift in bad-0" in tool.fails(*execute, "--topic", "bad", "--shift-by", "1")
        assert "bad-g" not in tool.ok("groups", "list").splitlines()


class TestDeleting:
    def test_each_group_is_deleted_or_refused_independently(self, tool: Tool) -> None:
        filled(tool, "del")
        for group in ("del-a", "del-b"):
            consumed(tool, "del", group, 1)
        assert tool.ok("groups", "delete", "del-a", "--dry-run") == "Would delete group del-a.\n"
        with member(tool, "del", "del-live"):
            done = tool("groups", "delete", "del-a", "del-live", "nobody", "del-b")
            assert (done.status, done.out) == (1, "Deleted group del-a.\nDeleted group del-b.\n")
            assert done.err.splitlines() == [
                "triokafka: group 'del-live': the group still has members. Stop its consumers first.",
                "triokafka: group 'nobody': no such group. Check the group id.",
            ]
            assert "is Stable and has 1 member. Stop" in tool.fails("groups", "delete", "del-live", "--dry-run")
        assert not {"del-a", "del-b"} & set(tool.ok("groups", "list").splitlines())

    def test_deleting_all_groups_asks_for_confirmation(self, tool: Tool) -> None:
        filled(tool, "sure")
        consumed(tool, "sure", "sure-g", 1)
        done = tool("groups", "delete", "--all-groups")
        assert done.status == 2 and "Give --yes" in done.err and "sure-g" in done.err
        assert "sure-g" in tool.ok("groups", "list").splitlines()
        assert "Would delete group sure-g." in tool("groups", "delete", "--all-groups", "--dry-run").out
        assert "Deleted group sure-g." in tool("groups", "delete", "--all-groups", "--yes").out.splitlines()

    def test_offsets_are_deleted_by_topic_and_partition(self, tool: Tool) -> None:
        for topic in ("fgt-a", "fgt-b"):
            filled(tool, topic, partitions=2)
            tool.ok(*RESET, "fgt-g", "--topic", topic, "--to-latest", "--execute")
        rows = table(tool.ok("groups", "delete-offsets", "fgt-g", "--topic", "fgt-a:1", "--topic", "fgt-b"))
        assert [tuple(row.values()) for row in rows] == [
            ("fgt-a", "1", "Successful"), ("fgt-b", "0", "Successful"), ("fgt-b", "1", "Successful"),
        ]  # fmt: skip
        assert offsets(tool, "fgt-g") == {("fgt-a", 0): 10}
        done = tool("groups", "delete-offsets", "fgt-g", "--topic", "nowhere", "--topic", "fgt-a:0", "--json")
        assert done.status == 1
        gone, failed = json.loads(done.out)
        assert (gone["topic"], gone["partition"]) == ("nowhere", None) and "does not have this topic" in gone["error"]
        assert failed == {"topic": "fgt-a", "partition": 0, "error": None}
        # With its last offset, the group itself is deleted; that is not a failure of the partitions after it.
        tool.ok(*RESET, "fgt-g", "--topic", "fgt-a:0", "--to-latest", "--execute")
        rows = table(tool.ok("groups", "delete-offsets", "--group", "fgt-g", "--topic", "fgt-a"))
        assert [row["STATUS"] for row in rows] == ["Successful", "Successful"]
        assert "consumer group 'nobody' does not exist" in tool.fails(
            "groups", "delete-offsets", "nobody", "--topic", "fgt-a"
        )

    def test_offsets_of_a_subscribed_topic_are_not_deleted(self, tool: Tool) -> None:
        filled(tool, "kept")
        with member(tool, "kept", "kept-g"):
            done = tool("groups", "delete-offsets", "kept-g", "--topic", "kept")
            assert done.status == 1 and "subscribed to the topic" in done.out


class TestSurroundings:
    @pytest.mark.parametrize("group", ["groups", "topics", "perf"])
    def test_group_without_a_command_prints_the_help(self, group: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert run([group]) == 2
        out, err = capfd.readouterr()
        assert out == "" and err.startswith(f"Usage: triokafka {group} [OPTIONS] COMMAND") and "See " not in err

    def test_unreachable_broker_is_one_error_line_in_time(self, capfd: pytest.CaptureFixture[str]) -> None:
        commands: list[list[str]] = [
            ["list"], ["describe", "g"], ["describe", "--all-groups"], ["members", "g"], ["offsets", "g"],
            ["reset-offsets", "g", "--topic", "t", "--to-earliest"], ["delete", "g"],
            ["delete-offsets", "g", "--topic", "t"],
        ]  # fmt: skip
        for command in commands:
            status = run(["groups", *command, "--bootstrap-server", "127.0.0.1:1", "--timeout", "200"])
            assert status == 1, command
            (line,) = capfd.readouterr().err.splitlines()
            assert "127.0.0.1:1" in line, command

    def test_options_of_the_client_come_from_a_file(self, tool: Tool, tmp_path: Path) -> None:
        config = tmp_path / "client.properties"
        config.write_text("request.timeout.ms=20000\n")
        tool.ok("groups", "list", "--command-config", str(config))
        config.write_text("request.timeot.ms=20000\n")
        assert "did you mean 'request_timeout_ms'" in tool.fails(
            "groups", "list", "--command-config", str(config), status=2
        )

    def test_closed_output_pipe_ends_groups_list_silently(self, tool: Tool) -> None:
        """As with ``triokafka groups list | head -1``."""
        process = tool.start("groups", "list", "--state")
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 128 + signal.SIGPIPE

    def test_interrupt_while_waiting_prints_one_word(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            process = subprocess.Popen(
                [sys.executable, "-m", "triokafka", "groups", "list",
                 "--bootstrap-server", f"127.0.0.1:{silent.getsockname()[1]}"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)  # it has sent a request, and waits for the response
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
                assert (out, err.strip()) == (b"", b"stopped")
        assert process.returncode == 130

    def test_table_fits_the_terminal(self, tool: Tool) -> None:
        filled(tool, "tty")
        with member(tool, "tty", "tty-g"):
            theirs, ours = pty.openpty()
            environment: dict[str, Any] = {**os.environ, "COLUMNS": "110"}
            process = subprocess.Popen(
                [sys.executable, "-m", "triokafka", "groups", "describe", "tty-g",
                 "--bootstrap-server", tool.bootstrap],
                stdout=ours, env=environment,
            )  # fmt: skip
            assert process.wait(timeout=60) == 0
            os.close(ours)
            lines = os.read(theirs, 65_536).decode().splitlines()
            os.close(theirs)
        assert len(lines) == 2 and max(map(len, lines)) <= 110
        assert "…" in lines[1]
