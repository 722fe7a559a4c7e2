"""No class is longer than a reader can hold in mind, what it inherits included."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final, NamedTuple

import triokafka

MOST: Final = 400
REASONS: Final = {
    "_Window": "one C structure: the decompressors and the walk over records share its buffer without a call between",
    "BrokerConfig": "a line for each option of the broker, in six groups, which are its bases",
    "AIOKafkaConsumer": "aiokafka's interface, with as many methods; the session and the local state do the work",
}
_PACKAGE: Final = Path(triokafka.__file__).parent


class _Class(NamedTuple):
    name: str
    bases: list[str]
    lines: int


def _lines_of_code(source: str, tree: ast.Module) -> set[int]:
    """Without blank lines, comments and docstrings."""
    found = {
        number
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _classes() -> list[_Class]:
    """Those of files that are long enough to matter."""
    found = []
    for path in sorted(_PACKAGE.rglob("*.py")):
        source = path.read_text()
        if source.count("\n") < MOST / 2:
            continue
        tree = ast.parse(source)
        code = _lines_of_code(source, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                bases = [base.id for base in names if isinstance(base, ast.Name)]
                lines = sum(line in code for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))
                found.append(_Class(node.name, bases, lines))
    return found


def test_no_class_is_longer_than_400_lines_without_a_reason() -> None:
    classes = _classes()
    longest = {one.name: one.lines for one in sorted(classes, key=lambda one: one.lines)}

    def whole(one: _Class) -> int:
        return one.lines + sum(longest.get(base, 0) for base in one.bases if base != one.name)

    sizes = {one.name: whole(one) for one in classes}
    assert {name for name, lines in sizes.items() if lines > MOST} == set(REASONS), "REASONS is not up to date"
