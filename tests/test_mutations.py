"""Each subtle rule of the producer is guarded: broken on purpose, a named test fails (`tests.mutations`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[1]
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc", "data")


def test_every_mutation_still_fits_its_file() -> None:
    """The text to replace is there, once; and the test that must notice exists."""
    for mutation in MUTATIONS:
        text = (ROOT / mutation.file).read_text()
        assert text.count(mutation.old) == 1, f"{mutation.name}: {text.count(mutation.old)} times in {mutation.file}"
        assert mutation.old != mutation.new
        file, _, test = mutation.test.partition("::")
        assert not test or f"def {test}(" in (ROOT / file).read_text() or f"\n{test} = " in (ROOT / file).read_text()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package and its tests, to be broken. Plain Python only: kernels need not be compiled for each mutation."""
    where = tmp_path_factory.mktemp("mutated")
    for name in ("triokafka", "tests"):
        shutil.copytree(ROOT / name, where / name, ignore=_NOT_COPIED)
    shutil.copy(ROOT / "pyproject.toml", where)
    yield where


def _run(where: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(where), "TRIOKAFKA_PURE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    shutil.rmtree(where / ".hypothesis", ignore_errors=True)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--timeout=60",
            *tests,
        ],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.long
@pytest.mark.timeout(600)
def test_unbroken_the_tests_pass(copy: Path) -> None:
    """Else a failure would prove nothing."""
    done = _run(copy, *dict.fromkeys(mutation.test for mutation in MUTATIONS))
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_broken_rule_is_noticed(copy: Path, mutation: Mutation) -> None:
    """Each by the test that is named for it."""
    file = copy / mutation.file
    text = file.read_text()
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        done = _run(copy, mutation.test)
    finally:
        file.write_text(text)
    assert done.returncode == 1, f"{mutation.test} does not notice: {done.stdout[-2000:]}{done.stderr[-2000:]}"
