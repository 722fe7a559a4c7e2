"""``triokafka spark doctor``: checks of the Spark setup, each with a remedy.

It starts no session: it runs Java and the workers' Python for their versions and looks up everything else.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Final, Literal

from triokafka.spark.home import has_zip, installed_spark
from triokafka.spark.java import MINIMUM_JAVA, JavaMissingError, find_java

Verdict = Literal["ok", "advice", "problem"]

_PYSPARK: Final = (4, 0)
_PYSPARK_TESTED: Final = (4, 3)
_UNIX_SOCKETS: Final = (4, 1)
_PYARROW: Final = {(4, 0): 11, (4, 1): 15, (4, 2): 18, (4, 3): 18}
_OUR_PYARROW: Final = 17
_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_REUSE: Final = "spark.python.worker.reuse"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Args:
        what: the name of the check.
        verdict: ``ok``; ``advice`` for a setup that works but could be better; ``problem`` for one that does not work.
        found: the finding.
        fix: the remedy; empty if none is needed.
    """

    what: str
    verdict: Verdict
    found: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the finding as a dictionary for JSON."""
        return asdict(self)


def diagnose(session: Mapping[str, str] | None = None) -> list[Finding]:
    """Check Java, the Pythons of driver and workers, the packages, and the session settings.

    Args:
        session: settings of a running session, ``dict(spark.sparkContext.getConf().getAll())``. None reads
            ``spark-defaults.conf`` from ``SPARK_CONF_DIR``, ``SPARK_HOME``, or else the installed pyspark.

    Waits for ``java -version``, and for the workers' Python if it is another one, each at most half a minute.
    """
    spark = _version("pyspark")
    settings = dict(session) if session is not None else _defaults()
    return [
        _java(),
        _pyspark(spark),
        _pyarrow(spark),
        _pandas(spark),
        _python(settings),
        _discovery(),
        _sockets(spark, settings),
        _reuse(settings),
        _zip(),
    ]


def _java() -> Finding:
    try:
        java = find_java()
    except JavaMissingError as error:
        return Finding("Java", "problem", str(error), error.advice)
    found = f"Java {java.version} in {java.home}, from {java.source}"
    wrong = os.environ.get("JAVA_HOME") if java.source != "JAVA_HOME" else None
    prepare = "call triokafka.spark.prepare_java() before the session starts"
    if wrong:
        # Spark uses JAVA_HOME only.
        return Finding(
            "Java",
            "problem",
            f"JAVA_HOME={wrong}, which Spark uses, is not a Java {MINIMUM_JAVA} or newer; there is {found}",
            f"JAVA_HOME={java.home}, or {prepare}",
        )
    if java.source in ("JAVA_HOME", "the path"):
        return Finding("Java", "ok", found)
    return Finding("Java", "advice", f"{found}, where Spark does not look", prepare)


def _pyspark(version: str | None) -> Finding:
    if version is None:
        return Finding("pyspark", "problem", "not installed", "pip install 'triokafka[spark]'")
    numbers = _numbers(version)
    if numbers < _PYSPARK:
        return Finding(
            "pyspark",
            "problem",
            f"{version}, which has no data sources in Python",
            "pip install 'pyspark>=4.0,<4.4'; with 3.3 and newer triokafka.spark.read_ranges reads topics",
        )
    if numbers > _PYSPARK_TESTED:
        return Finding(
            "pyspark", "advice", f"{version}, newer than any version tested with triokafka", "pip install 'pyspark<4.4'"
        )
    return Finding("pyspark", "ok", version)


def _pyarrow(spark: str | None) -> Finding:
    version = _version("pyarrow")
    floor = max(_OUR_PYARROW, _PYARROW.get(_numbers(spark)[:2], 0) if spark else 0)
    if version is None:
        return Finding("pyarrow", "problem", "not installed", "pip install 'triokafka[spark]'")
    if _numbers(version)[0] < floor:
        return Finding("pyarrow", "problem", version, f"pip install 'pyarrow>={floor}'")
    return Finding("pyarrow", "ok", version)


def _pandas(spark: str | None) -> Finding:
    version = _version("pandas")
    if version is None:
        return Finding("pandas", "ok", "not installed, and not needed")
    if _numbers(version)[0] >= 3 and spark is not None and _numbers(spark) <= _PYSPARK_TESTED:
        return Finding(
            "pandas",
            "advice",
            f"{version}: Spark {spark} warns that it does not fully support it",
            "pip install 'pandas<3'",
        )
    return Finding("pandas", "ok", version)


def _python(settings: Mapping[str, str]) -> Finding:
    """Check the workers' Python: if its minor version differs from the driver's, every task fails."""
    driver = f"{sys.version_info[0]}.{sys.version_info[1]}"
    worker = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or "python3"
    if os.path.realpath(shutil.which(worker) or worker) == os.path.realpath(sys.executable) and _same_environment(
        worker
    ):
        return Finding("Python", "ok", f"{driver}, the workers' is the driver's")
    found = _python_version(worker)
    fix = f"PYSPARK_PYTHON={sys.executable}, or call triokafka.spark.prepare_java() before the session starts"
    if found is None:
        return Finding("Python", "problem", f"the workers' Python {worker!r} does not run", fix)
    if found != driver:
        return Finding("Python", "problem", f"the driver has {driver}, the workers' {worker!r} is {found}", fix)
    if missing := _missing(worker):
        return Finding("Python", "problem", f"the workers' Python {worker!r} has no {missing}", fix)
    return Finding("Python", "ok", f"{driver}; the workers have {worker!r} of the same version")


def _same_environment(worker: str) -> bool:
    """Whether the worker's Python is in the driver's environment: several environments may link to one interpreter."""
    return os.path.dirname(os.path.abspath(shutil.which(worker) or worker)) == os.path.dirname(sys.executable)


def _discovery() -> Finding:
    if importlib.util.find_spec("pyspark_triokafka") is None:
        return Finding(
            "discovery",
            "problem",
            "the module pyspark_triokafka is not on the Python path",
            "install triokafka with pip, in the environment of the driver and of the workers",
        )
    return Finding("discovery", "ok", "format('triokafka') is found by every session")


def _sockets(spark: str | None, settings: Mapping[str, str]) -> Finding:
    what = "Unix sockets"
    if spark is not None and _numbers(spark) < _UNIX_SOCKETS:
        return Finding(what, "advice", f"Spark {spark} has only TCP between JVM and Python", "Spark 4.1 or newer")
    if settings.get(_SOCKETS, "false") == "true":
        return Finding(what, "ok", f"{_SOCKETS} is true")
    return Finding(
        what,
        "advice",
        f"{_SOCKETS} is not set: JVM and Python talk by TCP, about a quarter slower",
        "give the session triokafka.spark.session_conf()",
    )


def _reuse(settings: Mapping[str, str]) -> Finding:
    if settings.get(_REUSE, "true") != "true":
        return Finding("worker reuse", "advice", f"{_REUSE} is false: every task starts a Python", f"{_REUSE}=true")
    return Finding("worker reuse", "ok", "Python workers are kept for many tasks")


def _zip() -> Finding:
    """Check for ``pyspark.zip``: a session's Python processes import from it and compile everything."""
    home = os.environ.get("SPARK_HOME") or installed_spark()
    if home is None or not has_zip(home):
        return Finding("pyspark.zip", "ok", "Spark's Pythons import the pyspark that is installed")
    return Finding(
        "pyspark.zip",
        "advice",
        f"Spark's Pythons import pyspark from a zip without byte code in {home}: every streaming query begins more than"
        " half a second later",
        "in a local session leave SPARK_HOME unset, and call triokafka.spark.prepare_home() before it starts",
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, int]:
    major, minor, *_ = (*version.split("."), "0")
    return int(major), int("".join(filter(str.isdigit, minor)) or 0)


def _defaults() -> dict[str, str]:
    """Return the settings in ``spark-defaults.conf``, if the file exists."""
    home = os.environ.get("SPARK_HOME") or installed_spark()
    directory = os.environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    if not directory:
        return {}
    try:
        with open(os.path.join(directory, "spark-defaults.conf"), encoding="utf-8") as file:
            # Java's properties format: a space, an equals sign or a colon separates name and value.
            lines = [
                re.split(r"\s*[=:\s]\s*", line.strip(), maxsplit=1) for line in file if line.strip()[:1] not in "#!"
            ]
    except OSError:
        return {}
    return {line[0]: line[1] for line in lines if len(line) == 2}


def _asked(python: str, program: str) -> str | None:
    try:
        # Not in this directory: its modules are not on the workers of other machines.
        done = subprocess.run(
            [python, "-c", program],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            cwd=os.path.abspath(os.sep),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _python_version(python: str) -> str | None:
    return _asked(python, "import sys; print('%d.%d' % sys.version_info[:2])")


def _missing(python: str) -> str:
    """Return the first package that tasks need and this Python lacks; empty if it has all."""
    wanted = "'triokafka', 'trio', 'pyarrow'"
    answer = _asked(
        python, f"import importlib.util as u; print(*(n for n in ({wanted}) if u.find_spec(n) is None), 'none')"
    )
    first = (answer or "triokafka").split()[0]
    return "" if first == "none" else first
