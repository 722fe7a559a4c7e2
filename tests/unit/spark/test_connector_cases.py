"""Every test named in the table of the connector's cases exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "spark-cases.md"
SUITES = {
    "KafkaMicroBatchSourceSuite", "KafkaRelationSuite", "KafkaSinkSuite", "KafkaDontFailOnDataLossSuite",
    "KafkaOffsetRangeCalculatorSuite", "KafkaOffsetReaderSuite", "KafkaSourceOffsetSuite", "KafkaSourceProviderSuite",
    "JsonUtilsSuite", "ConsumerStrategySuite", "KafkaExceptionsSuite", "Pools of consumers and producers", "Faults",
}  # fmt: skip


def rows() -> list[tuple[str, str, str]]:
    """Return suite, case, and the text beside it."""
    found = []
    suite = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            suite = line[3:]
        elif line.startswith("| ") and not line.startswith("| case "):
            case, here = line.strip("| ").split(" | ")
            found.append((suite, case, here))
    return found


@cache
def names_in(file: str) -> set[str]:
    """Return the names of the test functions of a file; a star for all of them."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {"*", *(each.name for each in tree.body if isinstance(each, functions) and each.name.startswith("test_"))}


def test_every_suite_has_its_cases() -> None:
    assert {suite for suite, _, _ in rows()} == SUITES
    cases = [(suite, case) for suite, case, _ in rows()]
    assert len(cases) == len(set(cases))


def test_every_case_has_a_test_that_exists_or_a_reason() -> None:
    for suite, case, here in rows():
        named = re.findall(r"`([\w/]+\.py)::([\w*]+)`", here)
        assert named or here.startswith("none: "), (suite, case)
        for file, name in named:
            assert name in names_in(file), (suite, case, file, name)


def test_every_fault_run_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for file in ("spark/test_spark_faults.py", "spark/test_topic_changes.py"):
        for name in names_in(file) - {"*"}:
            assert f"{file}::{name}`" in page, name
