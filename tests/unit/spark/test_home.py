"""A home for Spark without ``pyspark.zip``, which has no byte code."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from triokafka.spark import home
from triokafka.spark.home import has_zip, installed_spark, prepare_home


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Create a pyspark as pip installs it."""
    monkeypatch.setenv("SPARK_HOME", "")  # so that whatever `prepare_home` sets is undone after the test
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    place = tmp_path / "site-packages" / "pyspark"
    for part in ("bin", "jars", "python/lib", "sql"):
        (place / part).mkdir(parents=True)
    (place / "python" / "lib" / "pyspark.zip").touch()
    monkeypatch.setattr(home, "installed_spark", lambda: str(place))
    return place


def test_the_home_has_all_of_spark_but_the_zip(package: Path) -> None:
    made = prepare_home()
    assert made is not None and os.environ["SPARK_HOME"] == made
    assert {entry.name: entry.resolve() for entry in Path(made).iterdir()} == {
        "bin": package / "bin",
        "jars": package / "jars",
    }
    assert has_zip(str(package)) and not has_zip(made)


def test_the_home_is_created_once_and_later_settings_are_linked_too(
    monkeypatch: pytest.MonkeyPatch, package: Path
) -> None:
    made = prepare_home()
    assert made is not None
    monkeypatch.delenv("SPARK_HOME")
    (package / "conf").mkdir()
    (package / "conf" / "spark-defaults.conf").write_text("spark.ui.enabled false")
    assert prepare_home() == made
    assert (Path(made) / "conf" / "spark-defaults.conf").exists()
    assert sorted(entry.name for entry in Path(made).iterdir()) == ["bin", "conf", "jars"]


def test_a_home_that_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert prepare_home() is None
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_workers_with_another_python_keep_the_zip(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers may have no other pyspark."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert prepare_home() is None
    assert "SPARK_HOME" not in os.environ


def test_an_unwritable_cache_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    made = prepare_home(str(tmp_path / "file"))
    assert made is not None and (Path(made) / "jars").is_dir()


def test_without_symbolic_links_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("a required privilege is not held")

    monkeypatch.setattr(os, "symlink", refuse)
    assert prepare_home() is None
    assert "SPARK_HOME" not in os.environ
    assert list((tmp_path / "temporary").iterdir()) == []


def test_only_a_pyspark_of_pip_is_taken(monkeypatch: pytest.MonkeyPatch, package: Path) -> None:
    """The package for Spark Connect has no jars."""
    monkeypatch.undo()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (package / "__init__.py").touch()
    monkeypatch.setattr(
        "triokafka.spark.home.importlib.util.find_spec", lambda name: Spec(str(package / "__init__.py"))
    )
    assert installed_spark() == str(package)
    (package / "jars").rmdir()
    assert installed_spark() is None
    assert prepare_home() is None


class Spec:
    """Where a package is."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
