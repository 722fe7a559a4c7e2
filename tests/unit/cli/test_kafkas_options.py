"""Options that commands accept because Kafka's tools have them."""

from __future__ import annotations

import click
import pytest

from triokafka.cli.app import commands, run


@pytest.mark.parametrize(
    ("path", "argument"),
    [
        ("topics create", "topic"),
        ("topics alter --partitions 3", "topics"),
        ("topics delete", "topics"),
        ("topics describe", "topics"),
        ("topics list", "topics"),
        ("consume", "topic"),
        ("produce", "topic"),
    ],
)
def test_topic_is_an_argument_or_an_option(path: str, argument: str) -> None:
    names = [word for word in path.split() if not word.startswith("-") and not word.isdigit()]
    options = path.split()[len(names) :]
    command: click.Command = commands
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    for given in (["orders"], ["--topic", "orders"], ["--topic=orders"]):
        context = command.make_context(names[-1], [*given, *options])
        assert context.params[argument] == "orders"
    assert command.make_context(names[-1], ["--topic", "--odd", *options]).params[argument] == "--odd"
    for wrong in (["--topic"], ["--topic", "a", "--topic", "b"], ["--topic", "a", "b"]):
        with pytest.raises(click.UsageError):
            command.make_context(names[-1], [*options, *wrong])


def test_quorum_changes_are_only_printed_in_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a broker."""
    directory = "AAAAAAAAAAAAAAAAAAAAAQ"
    words = ["quorum", "remove-controller", "--controller-id", "3", "--controller-directory-id", directory, "--dry-run"]
    assert run([*words, "-b", "127.0.0.1:1"]) == 0
    assert capsys.readouterr().out == f"Would remove controller 3 with directory id {directory}.\n"


def test_patterns_are_checked_without_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    """(KIP-848)"""
    pytest.importorskip("re2")
    assert run(["groups", "validate-regex", "orders-.*", "-b", "127.0.0.1:1"]) == 0
    assert capsys.readouterr().out == "The regular expression `orders-.*` is valid.\n"
    assert run(["groups", "validate-regex", "(?=x)"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("triokafka: '(?=x)' is not a valid RE2 pattern: invalid perl operator")
