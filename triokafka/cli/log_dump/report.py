"""Output of a dump: content to standard output immediately, findings to standard error at the end."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import click

from triokafka.cli.progress import Advance

_SHOWN: Final = 100  # per kind and file: a compacted log may have a gap at every other record


class Report:
    """Prints content and collects findings. ``failed``: there is damage; ``output_failed``: standard output is closed.

    It calls ``advance`` with the number of bytes of batches read.
    """

    def __init__(self, advance: Advance = lambda more: None) -> None:
        self.failed = False
        self.output_failed = False
        self.advance = advance
        self._findings: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._wrong: set[str] = set()
        self._counts: dict[tuple[str, str], int] = defaultdict(int)

    def line(self, text: str) -> None:
        """Print content of a file."""
        try:
            click.echo(text)
        except OSError:
            self.output_failed = True
            raise

    def remark(self, path: str, kind: str, text: str) -> None:
        """Collect a finding that may be normal."""
        self._counts[path, kind] += 1
        if len(self._findings[path, kind]) < _SHOWN:
            self._findings[path, kind].append(text)

    def problem(self, path: str, kind: str, text: str) -> None:
        """Collect damage."""
        self.failed = True
        self._wrong.add(path)
        self.remark(path, kind, text)

    def has_problem(self, path: str) -> bool:
        """Whether the file is damaged."""
        return path in self._wrong

    def finish(self) -> None:
        """Print the collected findings."""
        for (path, kind), findings in self._findings.items():
            click.echo(f"{kind} in {path}:", err=True)
            for text in findings:
                click.echo(f"  {text}", err=True)
            left = self._counts[path, kind] - len(findings)
            if left:
                click.echo(f"  and {left} more", err=True)
