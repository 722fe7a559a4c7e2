"""The unit tests on every CPython that the package supports and this machine has, each in its own environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release.interpreters import MINORS, found

ROOT = Path(__file__).parent.parent


def copy_sources(target: Path) -> None:
    """Copy the checkout without ignored files: kernels and caches belong to the interpreter that created them."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("minor", MINORS)
def test_unit_tests_pass(minor: str, tmp_path: Path) -> None:
    if minor == f"{sys.version_info[0]}.{sys.version_info[1]}":
        pytest.skip(f"this is CPython {minor}: `make test` runs them")
    interpreter = found().get(minor)
    if interpreter is None:
        pytest.skip(f"CPython {minor} was not found")
    source = tmp_path / "source"
    copy_sources(source)
    subprocess.run([interpreter.path, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--upgrade", "pip"], check=True)  # older ones do not know --group
    subprocess.run([*pip, "--editable", ".", "--group", "dev"], cwd=source, check=True)
    tests = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "tests/unit", "tests/property"]
    done = subprocess.run(tests, cwd=source, capture_output=True, text=True, check=False)
    print(f"\n{interpreter}: {done.stdout.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout[-20_000:]
