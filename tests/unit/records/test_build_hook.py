"""The build hook: a failed compilation, and a wish for the plain twins, still make a package."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import triokafka

ROOT = Path(triokafka.__file__).parent.parent
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))


class App:
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build_under_test", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv("TRIOKAFKA_PURE", raising=False)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source tree with the table of kernels and an old extension."""
    records = tmp_path / "triokafka" / "records"
    records.mkdir(parents=True)
    (tmp_path / "triokafka" / "client" / "producer").mkdir(parents=True)
    (tmp_path / "triokafka" / "asyncio" / "producer").mkdir(parents=True)
    (tmp_path / "triokafka" / "kernels.py").write_text((ROOT / "triokafka" / "kernels.py").read_text())
    (records / f"_kernel{SUFFIX}").write_text("old")
    return tmp_path


def initialize(module: ModuleType, source: Path, version: str) -> tuple[dict[str, Any], list[str]]:
    app = App()
    hook = module.CustomBuildHook(str(source), {}, None, None, str(source / "dist"), "wheel", app)
    data: dict[str, Any] = {"force_include": {}, "pure_python": True, "infer_tag": False}
    hook.initialize(version, data)
    hook.finalize(version, data, "")
    return data, app.warnings


def compiles(root: Path, names: list[str], directory: Path) -> list[tuple[Path, Path]]:
    made = []
    for name in names:
        inside = Path(*name.split(".")).with_suffix(SUFFIX)
        built = directory / inside.name
        built.write_text("new")
        made.append((built, inside))
    return made


def fails(root: Path, names: list[str], directory: Path) -> list[tuple[Path, Path]]:
    raise OSError("command 'cc'\nwas not found")


def test_wheel_holds_every_extension_of_the_table(
    module: ModuleType, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_compile", compiles)
    data, warnings = initialize(module, source, "standard")
    table = module._kernel_table(source)
    names = [f"{name.replace('.', '/')}{SUFFIX}" for name in [*table.TWINS, *table.INDEPENDENT]]
    assert f"triokafka/records/_kernel{SUFFIX}" in names
    assert sorted(data["force_include"].values()) == sorted(names)
    assert (data["pure_python"], data["infer_tag"], warnings) == (False, True, [])


def test_editable_install_has_its_extensions_in_place(
    module: ModuleType, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_compile", compiles)
    data, _ = initialize(module, source, "editable")
    assert data["force_include"] == {}
    assert (source / "triokafka" / "records" / f"_kernel{SUFFIX}").read_text() == "new"


@pytest.mark.parametrize("version", ["standard", "editable"])
def test_failed_compilation_is_one_line_of_warning_and_a_pure_wheel(
    module: ModuleType, source: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(module, "_compile", fails)
    data, warnings = initialize(module, source, version)
    assert data == {"force_include": {}, "pure_python": True, "infer_tag": False}
    assert len(warnings) == 1
    assert warnings[0].count("\n") == 0
    assert warnings[0].endswith("command 'cc' was not found")


def test_extension_of_an_older_source_does_not_outlive_a_failed_compilation(
    module: ModuleType, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_compile", fails)
    initialize(module, source, "editable")
    assert not list(source.rglob(f"*{SUFFIX}"))


def test_environment_asks_for_a_pure_wheel(module: ModuleType, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOKAFKA_PURE", "1")
    monkeypatch.setattr(module, "_compile", compiles)
    data, warnings = initialize(module, source, "standard")
    assert (data["force_include"], data["pure_python"], warnings) == ({}, True, [])
