"""A newcomer's first commands: typos, no broker, JSON, keys, completion; against a broker process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests.support.command_output import next_line, without_waiting
from triokafka.cli import completion_values
from triokafka.cli.app import commands
from triokafka.cli.app import run as run_here

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def orders(broker: str) -> str:
    """Return a topic with two records: one with a key and a header, and one that is not text."""
    done = run(broker, "produce", "orders", "--key", "table 4", "--value", "two coffees", "-H", "trace=7")
    assert (done.returncode, done.stderr) == (0, "1 record acknowledged\n")
    done = run(broker, "produce", "orders", stdin=b"\xff\xfe\n")
    assert done.returncode == 0
    return "orders"


def environment(broker: str) -> Mapping[str, str]:
    return {**os.environ, "TRIOKAFKA_BOOTSTRAP_SERVERS": broker, "PYTHONPATH": str(ROOT)}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "triokafka", *arguments]


def run(broker: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*arguments), input=stdin, capture_output=True, timeout=60, check=False, env=environment(broker)
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_consuming_an_unknown_topic_fails_with_the_nearest_name_and_creates_nothing(broker: str, orders: str) -> None:
    done = run(broker, "consume", "ordesr", "--from-beginning")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "triokafka: unknown topic ordesr; did you mean orders? Otherwise create it (triokafka topics create ordesr)"
        " or wait for it (--wait-for-topic)"
    )
    done = run(broker, "consume", "entirely-different", "--group", "g")
    assert done.returncode == 1 and "unknown topic entirely-different; create it (" in done.stderr
    assert {"ordesr", "entirely-different"}.isdisjoint(run(broker, "topics", "list").stdout.split())


@pytest.mark.parametrize(
    "words",
    [
        "groups describe g", "groups members g", "groups offsets g", "groups delete g", "groups list",
        "groups reset-offsets g --all-topics --to-earliest", "transactions describe --transactional-id x",
        "transactions force-terminate --transactional-id x", "transactions describe-producers --topic t --partition 0",
        "features disable --feature x", "features upgrade --metadata 4.0-IV3",
        "delete-records --yes --offset-json-file offsets.json",
        "delete-records --dry-run --offset-json-file offsets.json",
    ],
)  # fmt: skip
def test_commands_about_single_items_report_a_missing_broker(
    words: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("offsets.json").write_text('{"partitions": [{"topic": "orders", "partition": 0, "offset": 0}], "version": 1}')
    assert run_here([*words.split(), "-b", "127.0.0.1:1", "--timeout", "200"]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("triokafka: no broker has responded within 0.2 s: ")
    assert line.endswith("Is a broker running there? --bootstrap-server names another one")


def test_consume_waits_for_a_missing_topic_with_the_option(broker: str) -> None:
    options = ("--wait-for-topic", "--from-beginning", "--max-messages", "1")
    process = subprocess.Popen(
        command("consume", "later", *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(broker)
    )
    assert next_line(process.stderr) == "waiting for topic later, which does not exist yet …\n".encode()
    assert run(broker, "produce", "later", "--value", "at last").returncode == 0
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"at last\n")


def test_consume_reports_that_it_waits_for_new_records_and_how_to_read_the_old_ones(broker: str, orders: str) -> None:
    process = subprocess.Popen(
        command("consume", orders), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(broker)
    )
    assert next_line(process.stderr) == (
        "waiting for new records of orders …; --from-beginning prints those that are there already\n"
    )
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130


def test_records_are_printed_as_lines_of_json(broker: str, orders: str) -> None:
    done = run(broker, "consume", orders, "--from-beginning", "--max-messages", "2", "--json")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first.pop("timestamp") > 1_600_000_000_000
    assert first == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp_type": "CreateTime",
        "key": "table 4",
        "value": "two coffees",
        "headers": [{"name": "trace", "value": "7"}],
    }
    assert second["key"] is None and second["value_base64"] == "//4=" and "value" not in second
    options = ("--from-beginning", "--max-messages", "1", "--json", "--value-deserializer", "builtins:len")
    assert json.loads(run(broker, "consume", orders, *options).stdout)["value"] == 11
    done = run(broker, "consume", orders, "--json", "--formatter", "noop")
    assert done.returncode == 2 and "--json and --formatter exclude each other" in done.stderr


def test_key_headers_and_partition_of_the_command_line_are_those_of_every_line(broker: str) -> None:
    assert run(broker, "topics", "create", "keyed", "--partitions", "3").returncode == 0
    options = ("-k", "k", "--header", "a=1", "--header", "b=", "--partition", "2")
    errors = run(broker, "produce", "keyed", *options, stdin=b"one\ntwo\n").stderr
    assert without_waiting(errors) == "2 records acknowledged\n"
    done = run(broker, "consume", "keyed", "--from-beginning", "--max-messages", "2", "--json")
    for line, value in zip(done.stdout.splitlines(), ("one", "two"), strict=True):
        record = json.loads(line)
        assert (record["partition"], record["key"], record["value"]) == (2, "k", value)
        assert [header["value"] for header in record["headers"]] == ["1", ""]
    done = run(broker, "produce", "keyed", "--partition", "9", "--value", "one")
    assert done.returncode == 1 and done.stderr.splitlines()[0] == (
        "triokafka: topic 'keyed' has no partition 9: it has 3, numbered from 0."
        " Choose one of its partitions, or add partitions to the topic."
    )
    done = run(broker, "produce", "keyed", "--value", "one", "-X", "security.protocol=SSL")
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["triokafka:"]
    done = run(broker, "produce", "keyed", "-k", "k", "--property", "parse.key=true")
    assert done.returncode == 2 and "--key and a key in each line" in done.stderr
    assert "takes NAME=VALUE, not 'x'" in run(broker, "produce", "keyed", "-H", "x").stderr


def test_closed_output_pipe_ends_the_run_without_another_record(broker: str, orders: str) -> None:
    shell = f"set -o pipefail; {' '.join(command('consume', orders, '--from-beginning', '--json'))} | head -1"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False, env=environment(broker)
    )
    assert done.returncode == 128 + signal.SIGPIPE
    assert len(done.stdout.splitlines()) == 1 and "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("groups", "list"),
        ("configs", "describe", "--topic", "orders"),
        ("consume", "orders"),
        ("produce", "orders", "--value", "x"),
        ("perf", "produce", "--topic", "orders"),
        ("perf", "consume", "--topic", "orders"),
    ],
    ids=" ".join,
)
def test_unreachable_broker_is_named_and_the_command_ends(arguments: tuple[str, ...]) -> None:
    """Connections to the port are refused: one line names the attempt, one the failure."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        done = run("", *arguments, "-b", address, "--broker-timeout", "1100")
    assert (done.returncode, done.stdout) == (1, "")
    tried, *_ = lines = [line for line in done.stderr.splitlines() if line.startswith("triokafka: ")]
    assert tried == (
        f"triokafka: could not connect to bootstrap server {address}: Connection refused;"
        " trying for another 0.1 s (--broker-timeout)"
    )
    assert lines[-1].startswith(
        f"triokafka: no broker has responded within 1.1 s: could not connect to bootstrap server {address}"
    )


def completed(words: str) -> list[str]:
    """Return a shell's completions for the last word, which may be empty."""
    *before, begun = words.split(" ")
    found = ShellComplete(commands, {}, "triokafka", "_TRIOKAFKA_COMPLETE").get_completions(before, begun)
    return [item.value for item in found]


def test_shell_completes_topics_and_groups(broker: str, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(broker, "consume", orders, "--group", "billing", "--from-beginning", "--max-messages", "1")
    assert done.returncode == 0
    monkeypatch.setattr(completion_values, "LIMIT", 30.0)  # however busy this machine is
    monkeypatch.setenv("TRIOKAFKA_BOOTSTRAP_SERVERS", broker)
    assert completed("consume ord") == ["orders"]
    assert completed("topics describe x,ord") == ["x,orders"]
    assert completed("groups describe bil") == ["billing"]
    assert completed("consume orders --group b") == ["billing"]
    monkeypatch.delenv("TRIOKAFKA_BOOTSTRAP_SERVERS")
    assert completed(f"consume -b {broker} ord") == ["orders"]


def test_completion_without_a_broker_offers_nothing_and_prints_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        variables = {"_TRIOKAFKA_COMPLETE": "bash_complete", "COMP_WORDS": "triokafka consume ord", "COMP_CWORD": "2"}
        program = "from triokafka.cli.app import commands; commands(prog_name='triokafka')"
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**environment(address), **variables},
        )
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_completion_waits_a_second_at_most() -> None:
    assert completion_values.LIMIT <= 1
