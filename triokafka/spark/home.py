"""A home for Spark whose Python processes begin sooner.

Spark puts ``pyspark.zip`` of its home before all else that its Python processes import. The zip has no byte code, so
each of them compiles pyspark anew; the one that a streaming query waits for, too. Without the zip they import the
package as pip has installed it.
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
    """Set this process's ``SPARK_HOME`` to links to the installed pyspark, all but ``pyspark.zip``.

    To be called before the session starts, and for local sessions. A ``SPARK_HOME`` that is set stays as it is, and so
    does all when ``PYSPARK_PYTHON`` is another Python than the driver's, which may have no pyspark of its own.

    Args:
        cache_directory: where the directory of links is made; the user's cache directory by default.

    Returns:
        The new home. None when nothing was done: for one of these reasons, because pyspark was not installed by pip, or
        because the system has no links.
    """
    package = installed_spark()
    is_same_python = os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    if package is None or os.environ.get("SPARK_HOME") or not is_same_python:
        return None
    cache = cache_directory or os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # One for each environment, so that they do not change each other's.
    home = os.path.join(cache, "triokafka", f"spark-{hashlib.sha256(package.encode()).hexdigest()[:12]}")
    try:
        _link(package, home)
    except OSError:
        # Containers often have no home, or one that cannot be written to.
        home = tempfile.mkdtemp(prefix="triokafka-spark-")
        try:
            _link(package, home)
        except OSError:
            shutil.rmtree(home, ignore_errors=True)
            return None
    os.environ["SPARK_HOME"] = home
    return home


def installed_spark() -> str | None:
    """The directory of pyspark where it has its jars and the zip, as pip installs it; None where it has not."""
    try:
        found = importlib.util.find_spec("pyspark")
    except ValueError:  # something that is no package has its name
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
        # Beside it first: another process may be starting there.
        temporary = f"{link}.{os.getpid()}"
        os.symlink(target, temporary, target_is_directory=True)
        os.replace(temporary, link)
