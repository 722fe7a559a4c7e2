"""Where the findings of a dump go: content to standard output at once, trouble to standard error at the end."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import click

from triokafka.cli.progress import Advance

_SHOWN: Final = 100  # of one kind and file: a compacted log has a gap at every other record


class Report:
    """Prints, and remembers what was wrong. ``failed``: something was; ``output_failed``: nobody takes the content.

    ``advance`` is called with how many bytes of batches were looked at.
    """

    def __init__(self, advance: Advance = lambda more: None) -> None:
        self.failed = False
        self.output_failed = False
        self.advance = advance
        self._findings: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._wrong: set[str] = set()
        self._counts: dict[tuple[str, str], int] = defaultdict(int)

    def line(self, text: str) -> None:
        """Content of a file."""
        try:
            click.echo(text)
        except OSError:
            self.output_failed = True
            raise

    def remark(self, path: str, kind: str, text: str) -> None:
        """Something that may be as it should, for the end."""
        self._counts[path, kind] += 1
        if len(self._findings[path, kind]) < _SHOWN:
            self._findings[path, kind].append(text)

    def problem(self, path: str, kind: str, text: str) -> None:
        """Something that is wrong, for the end."""
        self.failed = True
        self._wrong.add(path)
        self.remark(path, kind, text)

    def has_problem(self, path: str) -> bool:
        """Whether something is wrong with that file."""
        return path in self._wrong

    def finish(self) -> None:
        """Print what was collected."""
        for (path, kind), findings in self._findings.items():
            click.echo(f"{kind} in {path}:", err=True)
            for text in findings:
                click.echo(f"  {text}", err=True)
            left = self._counts[path, kind] - len(findings)
            if left:
                click.echo(f"  and {left} more", err=True)
