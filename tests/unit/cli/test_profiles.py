"""The source of the brokers' addresses: command line, environment, profiles; and errors about an invalid
profile file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from triokafka.cli import connection, profiles

FILE = """
default = "local"

[local]
bootstrap_servers = "local:9092"

[staging]
bootstrap.servers = ["one:9092", "two:9092"]
client-id = "stranger"
request_timeout_ms = 3000
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory of its own, and an environment without our variables."""
    for name in (profiles.SERVERS_VARIABLE, profiles.PROFILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "triokafka").mkdir()
    return tmp_path


def write(home: Path, text: str | bytes) -> Path:
    path = home / "triokafka" / "profiles.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def options(*arguments: str) -> dict[str, Any]:
    """The options that a client of a command gets."""
    found: dict[str, Any] = {}

    @click.command()
    @connection.admin_options
    def command(**given: connection.AdminConnection) -> None:
        found.update(connection.client_options(given["connection"].bootstrap, given["connection"].settings))

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found


def refusal(*arguments: str) -> str:
    @click.command()
    @connection.admin_options
    def command(**given: connection.AdminConnection) -> None:
        raise AssertionError("the command was run")

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 2
    return result.output


def test_without_a_word_the_broker_is_on_this_machine() -> None:
    assert options() == {"default_api_timeout_ms": 5_000, "bootstrap_servers": "localhost:9092"}


def test_home_that_is_no_directory_has_no_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/dev/null")
    assert options()["bootstrap_servers"] == "localhost:9092"


def test_each_place_that_names_brokers_wins_over_the_next(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, FILE)
    assert options()["bootstrap_servers"] == "local:9092"
    monkeypatch.setenv(profiles.PROFILE_VARIABLE, "staging")
    assert options()["bootstrap_servers"] == "one:9092,two:9092"
    monkeypatch.setenv(profiles.SERVERS_VARIABLE, "variable:9092")
    assert options() == {"default_api_timeout_ms": 5_000, "bootstrap_servers": "variable:9092"}
    assert options("-X", "bootstrap.servers=setting:9092")["bootstrap_servers"] == "setting:9092"
    assert options("--profile", "local")["bootstrap_servers"] == "local:9092"
    assert options("-b", "flag:9092", "-X", "bootstrap.servers=setting:9092")["bootstrap_servers"] == "flag:9092"
    assert options("--profile", "local", "-b", "flag:9092")["bootstrap_servers"] == "flag:9092"


def test_profile_brings_options_of_the_client(home: Path) -> None:
    write(home, FILE)
    assert options("--profile", "staging", "-X", "request.timeout.ms=7000") == {
        "default_api_timeout_ms": 5_000,
        "bootstrap_servers": "one:9092,two:9092",
        "client_id": "stranger",
        "request_timeout_ms": 7_000,
    }


def test_timeout_of_the_command_line_wins_over_properties() -> None:
    assert options("-X", "default.api.timeout.ms=1")["default_api_timeout_ms"] == 1
    assert options("-X", "default.api.timeout.ms=1", "--timeout", "700")["default_api_timeout_ms"] == 700
    assert options("--broker-timeout", "700")["default_api_timeout_ms"] == 700


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (FILE, ["--profile", "stagin"], "profile 'stagin' is not in {path}. Did you mean staging?"),
        (FILE, ["--profile", "x"], "Known profiles: local, staging."),
        ("", ["--profile", "x"], "Known profiles: none."),
        ("[local", ["--profile", "local"], "{path} cannot be read: "),
        (b"\xff", ["--profile", "local"], "{path} cannot be read: "),
        ("[local]\n", ["--profile", "local"], "{path}: [local] has no brokers"),
        ("[local]\nbootstrap_servers = 3\n", ["--profile", "local"], "[local] has no brokers"),
        ("[local]\nclientid = 'x'\n", ["--profile", "local"], "unknown option 'clientid'. Did you mean client_id?"),
        ("bootstrap_servers = 'x:1'\n", ["--profile", "local"], "bootstrap_servers is outside a profile"),
        ("default = 'x'\n", [], "default: profile 'x' is not in"),
        ("default = 1\n", [], "default takes the name of a profile"),
    ],
)
def test_bad_file_is_refused_with_its_name(home: Path, text: str | bytes, arguments: list[str], words: str) -> None:
    path = write(home, text)
    assert words.format(path=path) in " ".join(refusal(*arguments).split())


def test_file_is_not_read_when_the_command_line_names_brokers(home: Path) -> None:
    write(home, "[broken")
    assert options("-b", "flag:9092")["bootstrap_servers"] == "flag:9092"


def test_names_of_profiles_are_completed_and_a_bad_file_completes_nothing(home: Path) -> None:
    from triokafka.cli.completion_values import profile_names

    context, parameter = click.Context(click.Command("x")), click.Option(["--profile"])
    write(home, FILE)
    assert [item.value for item in profile_names(context, parameter, "st")] == ["staging"]
    write(home, "[broken")
    assert profile_names(context, parameter, "") == []
    assert profiles.path().startswith(str(home))
