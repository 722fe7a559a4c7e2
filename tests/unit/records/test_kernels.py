"""Which of the two kernels runs, and that they have one interface."""

from __future__ import annotations

import importlib
import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import triokafka
from triokafka import kernels

ALL = kernels.TWINS | kernels.INDEPENDENT
COMPILED = [name for name in kernels.TWINS if kernels.is_compiled(name)]


def run(code: str, **environment: str) -> str:
    root = str(Path(triokafka.__file__).parent.parent)
    env = os.environ | {"PYTHONPATH": root} | environment
    return subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout


def test_environment_forces_the_plain_twins() -> None:
    code = "from triokafka import kernels, records; print(kernels.implementation(), records.ConsumerRecord.__module__)"
    assert run(code, TRIOKAFKA_PURE="1").split() == ["plain", "triokafka.records.plain_kernel"]
    name = "plain" if len(COMPILED) < len(kernels.TWINS) else "compiled"
    assert run(code, TRIOKAFKA_PURE="0").split()[0] == name


def test_source_without_an_extension_is_never_imported_as_python() -> None:
    """Without the extension ``import triokafka.records._kernel`` would run the source, slowly and untested."""
    code = """
import sys
from importlib.machinery import FileFinder
find = FileFinder.find_spec
def without_extensions(self, name, target=None):
    spec = find(self, name, target)
    ours = spec and spec.origin and "triokafka" in spec.origin
    return None if ours and not spec.origin.endswith(".py") else spec
FileFinder.find_spec = without_extensions
from triokafka import kernels, records
import triokafka.asyncio
print(kernels.implementation(), sorted(name for name in sys.modules if name in {*kernels.TWINS, *kernels.INDEPENDENT}))
"""
    assert run(code, TRIOKAFKA_PURE="").strip() == "plain []"


def test_importing_records_imports_no_optional_package() -> None:
    code = "import triokafka.records, triokafka.records.from_arrow, sys; print(*sys.modules)"
    loaded = set(run(code).split())
    assert loaded.isdisjoint({"pyarrow", "construct", "cramjam", "lz4", "lz4.frame", "backports.zstd"})


def public(module: object) -> Iterator[tuple[str, list[str]]]:
    """Every function and method of the interface, with the names of its parameters."""
    for name, item in vars(module).items():
        if name.startswith("_") or getattr(item, "__module__", None) != getattr(module, "__name__", None):
            continue
        if inspect.isclass(item):
            for method, function in vars(item).items():
                if callable(function) and not method.startswith("_"):
                    yield f"{name}.{method}", list(inspect.signature(function).parameters)
        else:
            yield name, list(inspect.signature(item).parameters)


@pytest.mark.parametrize("name", [name for name in ALL if kernels.is_compiled(name)])
def test_compiled_module_has_the_interface_of_its_twin(name: str) -> None:
    ours = dict(public(importlib.import_module(name)))
    twin = dict(public(importlib.import_module(ALL[name])))
    assert ours, "no public names"
    for item, parameters in ours.items():
        assert twin.get(item) == parameters, item


def test_every_source_of_the_table_and_its_twin_exist() -> None:
    root = Path(triokafka.__file__).parent.parent
    for name in [*ALL, *ALL.values()]:
        assert root.joinpath(*name.split(".")).with_suffix(".py").is_file()


def test_an_extension_older_than_its_source_is_not_used(tmp_path: Path) -> None:
    """After a pull and before the next build, a checkout runs plain and says so once."""
    root = Path(triokafka.__file__).parent.parent
    shutil.copytree(root / "triokafka", tmp_path / "triokafka", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").touch()
    code = "from triokafka import kernels, records; print(kernels.implementation())"
    expected = "compiled" if len(COMPILED) == len(kernels.TWINS) else "plain"
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "TRIOKAFKA_PURE": "0"}
    command = [sys.executable, "-c", code]
    before = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert (before.stdout.strip(), before.stderr) == (expected, "")
    source = tmp_path / "triokafka" / "records" / "_kernel.py"
    newer = max(path.stat().st_mtime for path in source.parent.iterdir()) + 10
    os.utime(source, (newer, newer))
    after = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert after.stdout.strip() == "plain"
    assert after.stderr.count("triokafka.records._kernel: the source is newer") == (expected == "compiled")
