"""The help of each command has working examples, and shells complete existing commands and options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from triokafka.cli.app import commands, run


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with its words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        one = command.get_command(context, name)
        assert one is not None
        yield from leaves(one, (*path, name))


LEAVES = dict(leaves(commands))


def shown_examples(command: click.Command) -> list[str]:
    return re.findall(r"^ +(.*triokafka .*)$", command.epilog or "", re.MULTILINE)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_shows_examples_that_the_command_takes(path: tuple[str, ...]) -> None:
    shown = shown_examples(LEAVES[path])
    assert shown
    for line in shown:
        words = shlex.split(line.partition("#")[0].partition("<")[0].partition(">")[0])
        if words[0] == "triokafka":
            assert tuple(words[1 : 1 + len(path)]) == path
            LEAVES[path].make_context(path[-1], words[1 + len(path) :])


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_examples_stand_in_one_place(path: tuple[str, ...]) -> None:
    assert "\n    triokafka " not in (LEAVES[path].callback.__doc__ or "")


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_fits_a_terminal_and_explains_every_option(path: tuple[str, ...]) -> None:
    printed = CliRunner().invoke(commands, [*path, "--help"]).output
    assert printed.startswith(f"Usage: commands {' '.join(path)}")
    explained = [one for one in LEAVES[path].params if isinstance(one, click.Option)]
    assert [
        one.name for one in explained if not one.help and not one.hidden and not isinstance(one.type, click.Choice)
    ] == []


def test_lists_of_commands_have_whole_sentences() -> None:
    for group in {path[:-1] for path in LEAVES} - {()}:
        printed = " ".join(CliRunner().invoke(commands, [*group, "--help"]).output.split())
        for path, one in LEAVES.items():
            if path[:-1] == group:
                line = f" {path[-1]} {one.get_short_help_str(limit=1_000)}"
                assert (line in printed) is not one.hidden


def test_unknown_option_like_two_others_gets_one_sentence_with_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--nonsense"]) == 2
    assert "Did you mean one of '--console', '--nodes'? See triokafka broker --help." in capsys.readouterr().err


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_kinds_of_numbers_are_named_in_plain_words(path: tuple[str, ...]) -> None:
    printed = CliRunner().invoke(commands, [*path, "--help"]).output
    assert "RANGE" not in printed.replace("--time-range", "")
    assert "None]" not in printed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    result = CliRunner().invoke(commands, ["completion", shell])
    assert result.exit_code == 0
    assert f"_TRIOKAFKA_COMPLETE={shell}_complete" in result.output


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("triokafka gro", ["groups"]),
        ("triokafka groups des", ["describe"]),
        ("triokafka topics create --part", ["--partitions"]),
        ("triokafka produce --acks ", ["0", "1", "-1", "all"]),
    ],
)
def test_commands_options_and_choices_are_completed(words: str, completed: list[str]) -> None:
    environment = {
        "_TRIOKAFKA_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    result = CliRunner(env=environment).invoke(commands, prog_name="triokafka")
    assert [line.partition(",")[2] for line in result.output.splitlines()] == completed
