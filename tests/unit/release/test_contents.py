"""The review of packages: complete ones pass, and each kind of stray or missing file is named."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from release.contents import faults_of

METADATA = """Metadata-Version: 2.4
Name: triokafka
Project-URL: Source, https://example.org/
Classifier: Typing :: Typed
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.11
Keywords: kafka
Requires-Dist: trio>=0.31

See [the page](https://example.org/docs/page.md) and [below](#below).
"""
WHEEL = (
    "triokafka/__init__.py", "triokafka/__main__.py", "triokafka/py.typed", "triokafka/testing/plugin.py",
    "triokafka/console/static/index.html", "triokafka/console/static/console.js", "pyspark_triokafka.py",
    "triokafka-1.dist-info/WHEEL", "triokafka-1.dist-info/RECORD", "triokafka-1.dist-info/licenses/LICENSE",
)  # fmt: skip
SDIST = (
    "LICENSE", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "hatch_build.py", "triokafka/py.typed",
    "tests/__init__.py", "examples/produce.py", "docs/index.md",
)  # fmt: skip
EXTENSION = "triokafka/records/_wire.cpython-312-x86_64-linux-gnu.so"


def wheel(directory: Path, *names: str, metadata: str = METADATA) -> Path:
    path = directory / "triokafka-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        archive.writestr("triokafka-1.dist-info/METADATA", metadata)
    return path


def sdist(directory: Path, *names: str) -> Path:
    path = directory / "triokafka-1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in (*names, "PKG-INFO"):
            member = tarfile.TarInfo(f"triokafka-1/{name}")
            member.size = len(METADATA)
            archive.addfile(member, io.BytesIO(METADATA.encode()))
    return path


def test_complete_packages_have_no_faults(tmp_path: Path) -> None:
    assert faults_of(wheel(tmp_path, *WHEEL)) == []
    assert faults_of(wheel(tmp_path, "triokafka/", *WHEEL, EXTENSION), compiled=True) == []
    assert faults_of(sdist(tmp_path, *SDIST)) == []


@pytest.mark.parametrize(
    "stray",
    ["triokafka/records/_wire.c", "triokafka/__pycache__/hooks.cpython-312.pyc", "tests/__init__.py",
     "benchmarks/clients/drive_aiokafka.py", "triokafka/console/static/index.html.orig", "hatch_build.py"],
)  # fmt: skip
def test_stray_file_in_a_wheel_is_named(tmp_path: Path, stray: str) -> None:
    assert faults_of(wheel(tmp_path, *WHEEL, stray)) == [f"{stray} does not belong into a wheel"]


@pytest.mark.parametrize("missing", ["triokafka/py.typed", "triokafka/console/static/index.html"])
def test_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    assert faults_of(wheel(tmp_path, *(name for name in WHEEL if name != missing))) == [f"{missing} is missing"]


def test_kernels_must_be_where_they_are_promised_and_only_there(tmp_path: Path) -> None:
    assert faults_of(wheel(tmp_path, *WHEEL), compiled=True) == ["there are no compiled kernels"]
    assert faults_of(wheel(tmp_path, *WHEEL, EXTENSION)) == ["a pure wheel has compiled kernels"]


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("Requires-Dist: aiokafka>=0.14", "the metadata names aiokafka>=0.14, which users do not need"),
        ("Provides-Extra: dev", "the metadata has the extra dev"),
        ("Requires-Dist: mypy; extra == 'types'", "the metadata names mypy; extra == 'types', which users do not need"),
    ],
)
def test_development_requirements_in_the_metadata_are_named(tmp_path: Path, more: str, fault: str) -> None:
    metadata = METADATA.replace("Keywords: kafka", f"Keywords: kafka\n{more}")
    assert faults_of(wheel(tmp_path, *WHEEL, metadata=metadata)) == [fault]


def test_relative_link_of_the_description_is_a_fault(tmp_path: Path) -> None:
    metadata = METADATA.replace("https://example.org/docs/", "docs/")
    assert faults_of(wheel(tmp_path, *WHEEL, metadata=metadata)) == ["1 links of the description are relative"]


@pytest.mark.parametrize("stray", [".venv/bin/python", "triokafka/records/_wire.so", "dist/old.whl", "a/__pycache__/b"])
def test_stray_file_in_an_sdist_is_named(tmp_path: Path, stray: str) -> None:
    assert faults_of(sdist(tmp_path, *SDIST, stray)) == [f"{stray} does not belong into an sdist"]
