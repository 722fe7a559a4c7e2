"""Commands and options that the pages only show exist: those in blocks that are not run, and in the text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.unit.cli.test_help import LEAVES
from tests.unit.test_docs import PAGES, name_of
from triokafka.broker_stub.config.broker_config import DEFINITIONS, is_listener_limit
from triokafka.broker_stub.config.properties import parse_properties
from triokafka.broker_stub.config.security_names import is_security
from triokafka.client.config import AdminOptions, ConsumerOptions, ProducerOptions

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(triokafka [a-z][^`\n]*)`")
_PLACEHOLDER = re.compile(r"…|\.\.\.|<[a-z]+>|\[[A-Z]|\|")
_INCOMPLETE = re.compile(r"cannot be read|No such file|does not exist|requires an argument|^Missing ")


def _shown_commands(text: str) -> Iterator[str]:
    """Yield every command of the program in blocks and in the text; lines that a backslash continues are joined."""
    for block in _BLOCK.finditer(text):
        if block[1] not in ("python", "sql"):
            lines = block[2].replace("\\\n", " ").splitlines()
            yield from (line.strip().removeprefix("$ ") for line in lines if re.match(r" *(\$ )?triokafka [a-z]", line))
    yield from _INLINE.findall(_BLOCK.sub("", text))


def _problem(line: str) -> str:
    """Return why the command line refuses a line; empty for one that it takes, or that leaves something open."""
    if _PLACEHOLDER.search(line):
        return ""
    words = shlex.split(re.split(r"[<>|#&;]", line)[0])[1:]
    path = next((tuple(words[:size]) for size in (2, 1) if tuple(words[:size]) in LEAVES), ())
    if not path:
        groups = {leaf[:1] for leaf in LEAVES}
        return "" if tuple(words[:1]) in groups and len(words) == 1 else "there is no such command"
    arguments = words[len(path) :]
    if not arguments or "--help" in arguments:
        return ""
    try:
        LEAVES[path].make_context(path[-1], arguments)
    except click.UsageError as error:
        return "" if _INCOMPLETE.search(error.message) else error.message
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_are_shown_are_understood(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {line: problem for line in _shown_commands(text) if (problem := _problem(line))} == {}


def test_properties_that_are_shown_exist() -> None:
    clients = {field for kind in (ProducerOptions, ConsumerOptions, AdminOptions) for field in kind.__annotations__}

    def is_known(name: str) -> bool:
        of_the_broker = name in DEFINITIONS or is_security(name) or is_listener_limit(name)
        return of_the_broker or name.replace(".", "_") in clients or name.startswith("config.providers")

    unknown = [
        f"{name_of(page)}: {name}"
        for page in PAGES
        for block in _BLOCK.finditer(page.read_text(encoding="utf-8"))
        if block[1] == "properties"
        for name in parse_properties(block[2], source=name_of(page))
        if not is_known(name)
    ]
    assert unknown == []
