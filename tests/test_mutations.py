"""Each subtle rule of the producer, log, coordinator and assignors is broken on purpose, and a test must fail.

`tests.support.mutations` and the ``*_mutations`` modules beside it list the rules.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.assignor_mutations import ASSIGNOR_MUTATIONS
from tests.support.controller_mutations import CONTROLLER_MUTATIONS
from tests.support.coordinator_mutations import COORDINATOR_MUTATIONS
from tests.support.log_mutations import LOG_MUTATIONS
from tests.support.mutations import MUTATIONS, Mutation
from tests.support.raft_mutations import RAFT_MUTATIONS
from tests.support.replication_mutations import REPLICATION_MUTATIONS
from tests.support.transaction_mutations import TRANSACTION_MUTATIONS

ALL_MUTATIONS = (
    MUTATIONS
    + LOG_MUTATIONS
    + COORDINATOR_MUTATIONS
    + TRANSACTION_MUTATIONS
    + ASSIGNOR_MUTATIONS
    + CONTROLLER_MUTATIONS
    + RAFT_MUTATIONS
    + REPLICATION_MUTATIONS
)
ROOT = Path(__file__).parents[1]
_MOST_SECONDS = 200.0
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc", "data")


def test_every_mutation_still_fits_its_file() -> None:
    """The text to replace occurs once, and the test that must fail exists."""
    for mutation in ALL_MUTATIONS:
        text = (ROOT / mutation.file).read_text()
        assert text.count(mutation.old) == 1, f"{mutation.name}: {text.count(mutation.old)} times in {mutation.file}"
        assert mutation.old != mutation.new
        file, _, test = mutation.test.partition("::")
        assert not test or f"def {test}(" in (ROOT / file).read_text() or f"\n{test} = " in (ROOT / file).read_text()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the package and its tests, to be broken.

    It is plain Python, so that no mutation needs compiled kernels.
    """
    where = tmp_path_factory.mktemp("mutated")
    for name in ("triokafka", "tests"):
        shutil.copytree(ROOT / name, where / name, ignore=_NOT_COPIED)
    shutil.copy(ROOT / "pyproject.toml", where)
    yield where


def _run(where: Path, *tests: str) -> tuple[int, str]:
    """Return exit status and output; a run that hangs counts as failed."""
    environment = {**os.environ, "PYTHONPATH": str(where), "TRIOKAFKA_PURE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["TRIOKAFKA_RAFT_SEEDS"] = "45"  # some rules are broken only in rare lives
    environment["TRIOKAFKA_REPLICATION_SEEDS"] = "40"
    shutil.rmtree(where / ".hypothesis", ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=60"]
    try:
        done = subprocess.run(
            [*command, *tests], cwd=where, env=environment, capture_output=True, text=True, timeout=_MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return 1, "it hangs"
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_unbroken_the_tests_pass(copy: Path) -> None:
    """Otherwise a failure would prove nothing."""
    status, output = _run(copy, *dict.fromkeys(mutation.test for mutation in ALL_MUTATIONS))
    assert status == 0, output[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("mutation", ALL_MUTATIONS, ids=lambda mutation: mutation.name)
def test_broken_rule_is_noticed(copy: Path, mutation: Mutation) -> None:
    """The test named for the rule must fail."""
    file = copy / mutation.file
    text = file.read_text()
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        status, output = _run(copy, mutation.test)
    finally:
        file.write_text(text)
    assert status == 1, f"{mutation.test} does not notice: {output[-3000:]}"
