"""kcat's command lines and ours print the same. The expected rows are those of kcat 1.7.1, which is run, too, if
installed.

``docs/cli.md`` has the table of options; the differences at its end are tested here as well.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.tool import Tool

KCAT = shutil.which("kcat")
TOPIC = "kc"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    process = BrokerProcess(None)
    yield process.start()
    assert process.stop() == 0


@pytest.fixture
def filled(tool: Tool) -> Tool:
    """Create a topic with every kind of key and value (text, empty, null) and headers."""
    if tool("topics", "describe", TOPIC).status != 0:
        tool.ok("topics", "create", TOPIC, "--partitions", "2")
        at = ("--timestamp", "1700000000000", "--key-separator", ":")
        tool.ok("produce", TOPIC, "--partition", "0", *at, stdin="k1:v1\nk2:v2\n:emptykey\nnokey\nk3:\n")
        later = ("--timestamp", "1700000009000", "--null", "")
        tool.ok("produce", TOPIC, "--partition", "0", *later, "--key-separator", ":", stdin="z1:\n:\n")
        tool.ok("produce", TOPIC, "--partition", "1", *later, "-H", "a=1", "-H", "b=", stdin="withh\n")
    return tool


ROWS: dict[str, tuple[list[str], list[str], str]] = {
    # kcat's options, ours, and the output of both
    "the key before the value": (
        ["-p", "0", "-K:"],
        ["--partition", "0", "--offset", "beginning", "--key-separator", ":"],
        "k1:v1\nk2:v2\n:emptykey\n:nokey\nk3:\nz1:\n:\n",
    ),
    "a format": (
        ["-f", r"%t|%p|%o|%k|%s|%K|%S|%T|%h\n", "-o", "-3"],
        ["-f", r"%t|%p|%o|%k|%s|%K|%S|%T|%h\n", "--offset", "-3"],
        "kc|0|4|k3||2|0|1700000000000|\nkc|0|5|z1||2|-1|1700000009000|\nkc|0|6|||-1|-1|1700000009000|\n"
        "kc|1|0||withh|-1|5|1700000009000|a=1,b=\n",
    ),
    "an offset": (["-p", "0", "-o", "3", "-c", "2"], ["--partition", "0", "--offset", "3", "--max-messages", "2"],
                  "nokey\n\n"),
    "a time": (
        ["-o", "s@1700000000001", "-f", r"%p:%o\n"], ["--offset", "s@1700000000001", "-f", r"%p:%o\n"],
        "0:5\n0:6\n1:0\n",
    ),
    "another delimiter": (
        ["-p", "1", "-D", "|"], ["--partition", "1", "--offset", "beginning", "--property", "line.separator=|"],
        "withh|",
    ),
}  # fmt: skip


def by_partition(text: str) -> list[str]:
    return sorted(text.splitlines())


@pytest.mark.parametrize("row", ROWS)
def test_options_print_the_same_as_kcats(filled: Tool, row: str) -> None:
    theirs, ours, expected = ROWS[row]
    assert by_partition(filled.ok("consume", TOPIC, "--until-end", *ours)) == by_partition(expected)
    if KCAT is not None:
        printed = subprocess.run(
            [KCAT, "-C", "-b", filled.bootstrap, "-t", TOPIC, "-e", "-q", *theirs],
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout  # fmt: skip
        assert by_partition(printed) == by_partition(expected)


def test_json_of_kcat_also_has_the_broker_id(filled: Tool) -> None:
    ours = ["--formatter", "kcat-json", "--partition", "1", "--offset", "beginning"]
    expected = (
        '{"topic":"kc","partition":1,"offset":0,"tstype":"create","ts":1700000009000,'
        '"headers":["a","1","b",""],"key":null,"payload":"withh"}\n'
    )
    assert filled.ok("consume", TOPIC, "--until-end", *ours) == expected
    if KCAT is not None:
        command = [KCAT, "-C", "-b", filled.bootstrap, "-t", TOPIC, "-p", "1", "-e", "-q", "-J"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        assert printed.replace('"broker":1,', "") == expected


def test_null_and_empty_values_differ_although_kcat_prints_null_for_both(filled: Tool) -> None:
    ours = ["--key-separator", ":", "--null", "NULL", "--partition", "0", "--offset", "beginning"]
    assert filled.ok("consume", TOPIC, "--until-end", *ours).splitlines()[2:] == [
        ":emptykey", "NULL:nokey", "k3:", "z1:NULL", "NULL:NULL",
    ]  # fmt: skip
    if KCAT is not None:
        command = [KCAT, "-C", "-b", filled.bootstrap, "-t", TOPIC, "-p", "0", "-e", "-q", "-K:", "-Z"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        assert printed.splitlines()[2:] == ["NULL:emptykey", "NULL:nokey", "k3:NULL", "z1:NULL", "NULL:NULL"]


def test_kcat_and_our_command_send_the_same_records(filled: Tool) -> None:
    if KCAT is None:
        pytest.skip("kcat is not installed")
    lines = "k:v\nnokey\n:x\ny:\n"
    for topic in ("theirs", "ours"):
        filled.ok("topics", "create", topic)
    command = [KCAT, "-P", "-b", filled.bootstrap, "-t", "theirs", "-p", "0", "-K:", "-Z"]
    subprocess.run(command, input=lines, text=True, check=True, timeout=60)
    filled.ok("produce", "ours", "--partition", "0", "--key-separator", ":", "--null", "", stdin=lines)
    read = ["--from-beginning", "--until-end", "-f", r"%k|%s|%K|%S\n"]
    assert filled.ok("consume", "ours", *read) == filled.ok("consume", "theirs", *read)
