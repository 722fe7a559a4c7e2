"""Finds the CPython interpreters of this machine: on ``PATH``, in pyenv's folders, and its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

MINORS: Final = ("3.11", "3.12", "3.13", "3.14")
"""The versions that the package supports."""

_DESCRIBE: Final = """
import json, platform, sys, sysconfig
print(json.dumps([
    platform.python_implementation(), list(sys.version_info[:3]), sys.version_info.releaselevel,
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
]))
"""


class Interpreter(NamedTuple):
    """One CPython."""

    version: tuple[int, int, int]
    path: str

    @property
    def minor(self) -> str:
        """Return the version that names a wheel, such as ``3.12``."""
        return f"{self.version[0]}.{self.version[1]}"

    def __str__(self) -> str:
        return f"CPython {'.'.join(map(str, self.version))}"


def found(environment: Mapping[str, str] = os.environ) -> dict[str, Interpreter]:
    """Return the newest final release of each supported version, by version; without free-threaded builds.

    Args:
        environment: has ``PATH``, and ``PYENV_ROOT`` where pyenv is not in ``~/.pyenv``.
    """
    best: dict[str, Interpreter] = {}
    for candidate in dict.fromkeys(_candidates(environment)):
        interpreter = _describe(candidate)
        if interpreter is None or interpreter.minor not in MINORS:
            continue
        if interpreter.minor not in best or interpreter.version > best[interpreter.minor].version:
            best[interpreter.minor] = interpreter
    return {minor: best[minor] for minor in MINORS if minor in best}


def _candidates(environment: Mapping[str, str]) -> Iterator[str]:
    yield os.path.join(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    for minor in MINORS:
        on_path = shutil.which(f"python{minor}", path=environment.get("PATH", ""))
        if on_path:
            yield on_path
    pyenv = Path(environment.get("PYENV_ROOT") or Path(environment.get("HOME", "/")) / ".pyenv")
    yield from sorted(str(path) for path in pyenv.glob("versions/3.*/bin/python"))


def _describe(path: str) -> Interpreter | None:
    """Return None for what is no usable CPython, such as pyenv's stand-in for a version that is not chosen."""
    try:
        done = subprocess.run([path, "-I", "-c", _DESCRIBE], capture_output=True, text=True, timeout=60, check=False)
        implementation, version, level, without_gil = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if implementation != "CPython" or level != "final" or without_gil:
        return None
    return Interpreter((version[0], version[1], version[2]), path)
