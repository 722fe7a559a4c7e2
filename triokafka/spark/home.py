"""A Spark home whose Python processes start faster.

Spark puts its home's ``pyspark.zip`` first on the path of its Python processes. The zip has no byte code, so each
process compiles pyspark again, including the one that a streaming query waits for. Without the zip they import the
installed package.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from typing import Final

_PARTS: Final = ("bin", "conf", "data", "jars", "licenses", "sbin")
_ZIP: Final = os.path.join("python", "lib", "pyspark.zip")


def prepare_home(cache_directory: str | None = None) -> str | None:
    """Set this process's ``SPARK_HOME`` to a directory of links to the installed pyspark, without ``pyspark.zip``.

    Call it before the session starts, for local sessions only. Does nothing if ``SPARK_HOME`` is set, or if
    ``PYSPARK_PYTHON`` is another Python than the driver's, which may have no pyspark of its own.

    Args:
        cache_directory: the parent of the directory of links; the user's cache directory by default.

    Returns:
        The new home. None if nothing was done: for one of these reasons, because pyspark was not installed by pip, or
        because the system does not support links.
    """
    package = installed_spark()
    is_same_python = os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    if package is None or os.environ.get("SPARK_HOME") or not is_same_python:
        return None
    cache = cache_directory or os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # One home per environment, so that environments do not affect each other.
    home = os.path.join(cache, "triokafka", f"spark-{hashlib.sha256(package.encode()).hexdigest()[:12]}")
    try:
        _link(package, home)
    except OSError:
        # Containers often have no home directory, or one that is not writable.
        home = tempfile.mkdtemp(prefix="triokafka-spark-")
        try:
            _link(package, home)
        except OSError:
            shutil.rmtree(home, ignore_errors=True)
            return None
    os.environ["SPARK_HOME"] = home
    return home


def installed_spark() -> str | None:
    """Return pyspark's directory if it has jars and the zip, as after pip install; otherwise None."""
    try:
        found = importlib.util.find_spec("pyspark")
    except ValueError:  # a module without a spec has the name
        return None
    if found is None or found.origin is None:
        return None
    package = os.path.dirname(found.origin)
    is_whole = os.path.isdir(os.path.join(package, "jars")) and os.path.exists(os.path.join(package, _ZIP))
    return package if is_whole else None


def has_zip(home: str) -> bool:
    """Whether Python processes of a Spark at ``home`` import pyspark from the zip."""
    return os.path.exists(os.path.join(home, _ZIP))


def _link(package: str, home: str) -> None:
    os.makedirs(home, exist_ok=True)
    for part in _PARTS:
        target, link = os.path.join(package, part), os.path.join(home, part)
        if not os.path.exists(target) or (os.path.islink(link) and os.readlink(link) == target):
            continue
        # Create and rename, because another process may be starting from this home.
        temporary = f"{link}.{os.getpid()}"
        os.symlink(target, temporary, target_is_directory=True)
        os.replace(temporary, link)
