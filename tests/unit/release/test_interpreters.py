"""Which interpreters a release is built for."""

from __future__ import annotations

import sys
from pathlib import Path

from release.interpreters import found

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def stand_in(path: Path, answer: str) -> None:
    """A program that answers as an interpreter would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)


def cpython(path: Path, version: str, level: str = "final", free_threaded: str = "false") -> None:
    stand_in(path, f'echo \'["CPython", {version}, "{level}", {free_threaded}]\'')


def test_newest_final_release_of_each_version_is_chosen(tmp_path: Path) -> None:
    pyenv = tmp_path / "pyenv"
    for name, version in {"3.12.1": "[3, 12, 1]", "3.12.10": "[3, 12, 10]", "3.10.4": "[3, 10, 4]"}.items():
        cpython(pyenv / "versions" / name / "bin" / "python", version)
    cpython(pyenv / "versions" / "3.14.0rc1" / "bin" / "python", "[3, 14, 0]", level="candidate")
    cpython(pyenv / "versions" / "3.13.1t" / "bin" / "python", "[3, 13, 1]", free_threaded="true")
    chosen = found({"PATH": "", "PYENV_ROOT": str(pyenv)})
    assert set(chosen) == {"3.12", OWN}
    assert chosen["3.12"].version >= (3, 12, 10) and chosen["3.12"].minor == "3.12"


def test_command_that_is_no_interpreter_is_skipped(tmp_path: Path) -> None:
    """pyenv has a python3.13 on PATH that only says which versions could be chosen."""
    stand_in(tmp_path / "bin" / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    cpython(tmp_path / "versions" / "3.13.2" / "bin" / "python", "[3, 13, 2]")
    chosen = found({"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path)})
    assert chosen["3.13"].version >= (3, 13, 2)


def test_interpreter_on_the_path_is_found(tmp_path: Path) -> None:
    cpython(tmp_path / "python3.14", "[3, 14, 99]")
    chosen = found({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert str(chosen["3.14"]) == "CPython 3.14.99" and chosen["3.14"].path == str(tmp_path / "python3.14")
