"""No class, inherited code included, and no module is longer than a reader can keep in mind."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final, NamedTuple

import triokafka

MOST: Final = 400
REASONS: Final = {
    "_Window": "one C structure: the decompressors and the walk over records share its buffer without a call between",
    "ColumnAppender": "one C structure: every column's buffers grow in the loop that reads the records",
    "BrokerConfig": "a line for each option of the broker, in six groups, which are its bases",
    "ProducerOptions": "a line for each option of the producer, those of every client included",
    "ConsumerOptions": "a line for each option of the consumer, those of every client included",
}
LONG_MODULES: Final = {
    "asyncio/producer/_sending.py": "compiled: the path of a record and its future are C structures of one module",
    "broker_stub/config/options.py": "one list, in which one searches for a name",
    "client/config.py": "one list, in which one searches for a name",
    "client/producer/_fast_path.py": "compiled: the batch, its deliveries and the path into it are C structures",
    "errors.py": "one list, ordered by Kafka's error codes",
    "records/_columns.py": "compiled: one C structure",
    "records/_compressed_survey.py": "compiled: one C structure",
}
_PACKAGE: Final = Path(triokafka.__file__).parent


class _Class(NamedTuple):
    lines: int
    bases: list[str]


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


def _classes() -> dict[str, _Class]:
    """By name; of several with one name, such as a compiled class and its plain twin, the longest."""
    found: dict[str, _Class] = {}
    for path in sorted(_PACKAGE.rglob("*.py")):
        source = path.read_text()
        if "\nclass " not in source:
            continue
        tree = ast.parse(source)
        code = _lines_of_code(source, tree)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                names = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                bases = [base.id for base in names if isinstance(base, ast.Name)]
                lines = sum(line in code for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))
                found[node.name] = max(found.get(node.name, _Class(0, [])), _Class(lines, bases))
    return found


def test_no_class_is_longer_than_400_lines_without_a_reason() -> None:
    classes = _classes()

    def whole(name: str) -> int:
        one = classes.get(name)
        return 0 if one is None else one.lines + sum(whole(base) for base in one.bases if base != name)

    assert {name for name in classes if whole(name) > MOST} == set(REASONS), "REASONS is not up to date"


def test_no_module_is_longer_than_400_lines_without_a_reason() -> None:
    long = set()
    for path in sorted(_PACKAGE.rglob("*.py")):
        source = path.read_text()
        if len(source.splitlines()) > MOST and len(_lines_of_code(source, ast.parse(source))) > MOST:
            long.add(path.relative_to(_PACKAGE).as_posix())
    assert long == set(LONG_MODULES), "split it where a component has one job, or state a reason"
