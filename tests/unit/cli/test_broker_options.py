"""A broker whose command line is simple starts without click, with the options that click would have read."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import triokafka
from triokafka.cli.broker import command
from triokafka.cli.broker_options import BrokerOptions, WrongUse, plain_options, properties_of

WORDS = (
    *("--listen", "--listen=h:1", "--listen=", "--data-dir", "--data-dir=/d", "--set", "--set=a=b", "--in-memory"),
    *("--in-memory=1", "--config", "--config=f", "--nodes=3", "--nodes", "--control=h:1", "-v", "-vv", "--verbose"),
    *("--help", "-h", "--lis", "--lis=h:1", "--", "-", "", "h:1", "a=b", "=", "3"),
)


def read_by_click(arguments: list[str]) -> BrokerOptions | None:
    """None if click reports an error about them."""
    try:
        found = command.make_context("broker", arguments).params
    except (click.exceptions.Exit, click.ClickException):
        return None
    assert found.pop("config_file") is None
    return BrokerOptions(**found)


@pytest.mark.parametrize("first", ["", *WORDS])
def test_plain_options_equal_clicks(first: str, capsys: pytest.CaptureFixture[str]) -> None:
    for rest in itertools.product(WORDS, repeat=2):
        for arguments in ([first, *rest], [*rest, first], [first]):
            plain = plain_options(arguments)
            if plain is not None:
                read = read_by_click(arguments)
                assert read is not None, arguments
                assert [tuple(x) if isinstance(x, list) else x for x in plain] == list(read), arguments


def test_usual_broker_options_are_parsed_without_click() -> None:
    words = [
        "--listen",
        "h:1",
        "--listen=h:2",
        "--data-dir",
        "/a",
        "--data-dir=/b",
        "--set",
        "a=b=c",
        "--set=d=",
        "--in-memory",
    ]
    assert plain_options(words) == BrokerOptions(["h:1", "h:2"], ["/a", "/b"], True, settings=["a=b=c", "d="])
    assert plain_options([]) == BrokerOptions([], [], settings=[])


@pytest.mark.parametrize("words", [["--help"], ["-v"], ["--nodes", "3"], ["--listen"], ["--lis", "h:1"], ["x"], [""]])
def test_all_else_is_for_click(words: list[str]) -> None:
    assert plain_options(words) is None


def test_several_brokers_need_ports_that_there_are() -> None:
    def properties(nodes: int, *listeners: str, **settings: str) -> dict[str, str]:
        said = [f"{name}={value}" for name, value in settings.items()]
        return properties_of(BrokerOptions(listeners, [], True, settings=said, nodes=nodes))

    with pytest.raises(WrongUse, match=r"--nodes 5: .* on ports 65533 to 65537, but the highest port is 65535"):
        properties(5, "127.0.0.1:65533")
    with pytest.raises(WrongUse, match="ports 65535 to 65536"):
        properties(2, listeners="A://h:1,B://h:65535")
    assert properties(3, "127.0.0.1:65533")["listeners"] == "PLAINTEXT://127.0.0.1:65533"
    assert properties(70_000, "127.0.0.1:0")["listeners"] == "PLAINTEXT://127.0.0.1:0"


PLAINLY = """
import sys
from triokafka import cli
run = cli._plain_broker(sys.argv[1:])
print(run is not None, "click" in sys.modules)
"""


def says(*words: str) -> str:
    """Whether a command line starts a broker without click, and whether click was imported for that decision."""
    root = str(Path(triokafka.__file__).parent.parent)
    command = [sys.executable, "-c", PLAINLY, *words]
    environment = os.environ | {"PYTHONPATH": root}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_command_takes_the_plain_way_where_there_is_one() -> None:
    assert says("broker", "--listen", "h:1", "--data-dir", "/d") == "True False"
    assert says("broker", "--in-memory", "-v") == says("broker", "--help") == says("topics") == says() == "False False"
