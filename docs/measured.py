"""Measured figures in README.md and the pages: each comes from a file in ``docs/numbers``.

``python -m benchmarks --save-numbers`` writes these files and then runs this module. Three marks, which readers do not
see, connect a page with them:

- ``2.4<!-- number: produce.librdkafka -->``: the figure before the mark is ``librdkafka`` of ``produce.json``.
- ``<!-- measured: produce -->…<!-- /measured -->``: the text between is the command, the date and the machine.
- ``<!-- not measured -->``: the line has a comparison that is no measurement, or one that a longer run gave.

``python -m docs.measured`` writes the figures of the files into the pages.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
NUMBERS: Final = ROOT / "docs" / "numbers"
PAGE: Final = ROOT / "docs" / "measurements.md"
_MARK: Final = re.compile(
    r"(?P<shown>\d(?:[\d,]*\d)?(?:\.\d+)?)(?P<unit>[^\d<>|]{0,20})<!-- number: (?P<name>[\w.-]+) -->"
)
_ANY_MARK: Final = re.compile(r"<!-- number: ([\w.-]+) -->")
_SENTENCE: Final = re.compile(r"(<!-- measured: ([\w-]+) -->).*?(<!-- /measured -->)", re.DOTALL)
_CLAIM: Final = re.compile(
    r"""(?P<claim>(?:\d[\d.,]*|several|twice|many)\s*(?:×|times)\s*(?:as|faster|slower|less|more|the|fewer)\b
    |\d[\d.,]*\s*×
    |\d[\d.,]*\s*(?:records/s|records\ (?:a|per)\ second|messages\ (?:a|per)\ second))""",
    re.VERBOSE,
)


class UnknownFigureError(Exception):
    """A page names a figure that no file has."""


def pages() -> list[Path]:
    """Return the pages in which a measured comparison without a mark is an error: all that are written by hand."""
    found = (ROOT / "docs").rglob("*.md")
    return [ROOT / "README.md", *sorted(path for path in found if not {"reference", "site"} & set(path.parts))]


@cache
def document(table: str) -> dict[str, Any]:
    """Return the content of a table's file."""
    path = NUMBERS / f"{table}.json"
    if not path.exists():
        raise UnknownFigureError(
            f"docs/numbers/{table}.json does not exist: python -m benchmarks --save-numbers {table}"
        )
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def figure(name: str) -> str:
    """Return a figure as pages show it, by its name ``table.figure``."""
    table, _, key = name.partition(".")
    figures = document(table)["figures"]
    if key not in figures:
        raise UnknownFigureError(f"docs/numbers/{table}.json has no figure {key!r}, but {', '.join(figures)}")
    return str(figures[key]["text"])


def sentence(table: str) -> str:
    """Return command, date and machine of a table."""
    found = document(table)
    machine = found["machine"]
    return (
        f"`{found['command']}`, {found['date']}: {machine['cores']} cores of {machine['cpu']}, "
        f"{machine['memory_gib']:.0f} GiB, {machine['system']}, Python {found['python']}"
    )


def updated(text: str) -> str:
    """Return a page's text with the figures of the files."""
    text = _MARK.sub(lambda m: f"{figure(m['name'])}{m['unit']}<!-- number: {m['name']} -->", text)
    return _SENTENCE.sub(lambda m: f"{m[1]}{sentence(m[2])}{m[3]}", text)


def problems(text: str) -> list[str]:
    """Return what is wrong with the marks of a page's text; empty if all figures are those of the files."""
    found = []
    for mark in _MARK.finditer(text):
        try:
            wanted = figure(mark["name"])
        except UnknownFigureError as error:
            found.append(str(error))
            continue
        if mark["shown"] != wanted:
            found.append(f"{mark['name']} is {wanted}, not {mark['shown']}")
    if len(_ANY_MARK.findall(text)) != len(_MARK.findall(text)):
        found.append("a mark has no figure within 20 characters before it")
    for mark in _SENTENCE.finditer(text):
        if mark[0] != f"{mark[1]}{sentence(mark[2])}{mark[3]}":
            found.append(f"command, date or machine of {mark[2]} are not those of the file")
    return found


def unmarked_claims(text: str) -> list[str]:
    """Return the measured comparisons of a page that no mark connects with a file, outside of blocks of code."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = prose.splitlines()
    found = []
    for number, line in enumerate(lines):
        for claim in _CLAIM.finditer(line):
            near = line[max(0, claim.start() - 60) : claim.end() + 80]
            if line.startswith("| `") and text.startswith("# Measured numbers"):
                continue  # made from the files
            if "<!-- number:" not in near and "<!-- not measured -->" not in line:
                found.append(f"{number + 1}: {claim['claim']}")
    return found


def page() -> str:
    """Return ``docs/measurements.md``: all figures of all files."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield "# Measured numbers"
    yield ""
    yield "<!-- Made by `python -m docs.measured` from the files in `docs/numbers`. -->"
    yield ""
    yield from (
        "`make numbers` measures all figures on this page, in a quarter of an hour on a quiet machine, and writes the",
        "page. Clients and brokers of a table take turns, so that a slow moment of the machine affects all, and the",
        "figures are medians. Compare the ratios: absolute figures depend on the machine and its load, which each",
        "section states. *A over B* is A's figure divided by B's, in the order in which more than 1 is better for",
        "triokafka. Half of all cases are at most p50, and 99 of 100 at most p99. `make bench` measures more cases.",
    )
    for path in sorted(NUMBERS.glob("*.json")):
        found = document(path.stem)
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        rounds = "one round" if found["rounds"] == 1 else f"{found['rounds']} rounds"
        yield f"\n## {path.stem.replace('_', ' ').capitalize()}\n"
        yield f"Measured: {found['about']}.\n"
        yield f"{sentence(path.stem)}, {rounds}; load of the machine before: {found['machine']['load_before']}."
        yield f"Versions: {versions}.\n"
        yield "| figure | value | what it is |"
        yield "|---|---:|---|"
        for name, one in found["figures"].items():
            yield f"| `{name}` | {one['text']} | {one['what'].replace('|', '/')} |"
    yield ""


def main() -> int:
    """Bring all pages up to date, and print those that changed."""
    document.cache_clear()
    PAGE.write_text(page(), encoding="utf-8")
    for path in pages():
        before = path.read_text(encoding="utf-8")
        if "<!-- number: " not in before and "<!-- measured: " not in before:
            continue
        after = updated(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: figures updated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
