"""The topic of a command, which is an argument here and the option ``--topic`` in Kafka's tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

_OPTION: Final = "--topic"
_END: Final = "--"


class TopicCommand(click.Command):
    """A command whose argument is a topic, or topics, and may also be given as ``--topic NAME``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. Raises `click.UsageError` for ``--topic`` without a name, or twice."""
        rest, topics = _split(args)
        if len(topics) > 1:
            raise click.UsageError(f"{_OPTION} is given {len(topics)} times.", ctx)
        if None in topics:
            raise click.UsageError(f"Option {_OPTION} requires an argument.", ctx)
        if topics:
            rest += [*([] if _END in rest else [_END]), *(name for name in topics if name is not None)]
        return super().parse_args(ctx, rest)


def _split(args: Iterable[str]) -> tuple[list[str], list[str | None]]:
    """Return the other words, and the values of ``--topic``: None for a missing one."""
    rest: list[str] = []
    topics: list[str | None] = []
    words = iter(args)
    for word in words:
        if word == _OPTION:
            topics.append(next(words, None))
        elif word.startswith(f"{_OPTION}="):
            topics.append(word.partition("=")[2])
        else:
            rest.append(word)
        if word == _END:
            break
    return [*rest, *words], topics
