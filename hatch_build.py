"""Compiles the modules that ``triokafka.kernels`` lists into the wheel, or in place for an editable install.

Without a C compiler, ``Python.h`` or Cython, or with ``TRIOKAFKA_PURE=1``, the wheel is a pure one with the plain
modules. That costs only speed, so it is a one-line warning and never an error.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sysconfig
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that ``[tool.hatch.build.targets.wheel.hooks.custom]`` names."""

    _directory: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; ``version`` is ``editable`` for an editable install."""
        kernels = _kernel_table(Path(self.root))
        in_place = version == "editable"
        if in_place:
            _remove_extensions(Path(self.root), {**kernels.TWINS, **kernels.INDEPENDENT})
        if kernels.wants_plain():
            return
        self._directory = tempfile.mkdtemp(prefix="triokafka-build-")
        try:
            extensions = _compile(Path(self.root), [*kernels.TWINS, *kernels.INDEPENDENT], Path(self._directory))
        except (Exception, SystemExit) as failure:
            reason = textwrap.shorten(str(failure) or type(failure).__name__, 100)
            self.app.display_warning(f"triokafka is built without its compiled kernels, which costs speed: {reason}")
            return
        for built, inside in extensions:
            if in_place:
                # Replace in one step: a process that runs the extension keeps the mapped file.
                fresh = Path(self.root) / inside.with_name(inside.name + ".new")
                shutil.copyfile(built, fresh)
                fresh.replace(Path(self.root) / inside)
            else:
                build_data["force_include"][str(built)] = str(inside)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove temporary files."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def _kernel_table(root: Path) -> Any:
    """Load ``triokafka/kernels.py`` as a module without importing the package (its dependencies are not installed
    yet)."""
    spec = importlib.util.spec_from_file_location("_triokafka_kernels", root / "triokafka" / "kernels.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _remove_extensions(root: Path, names: dict[str, str]) -> None:
    """Remove extensions: one of an older source must not outlive a build without extensions."""
    for name in names:
        path = root.joinpath(*name.split("."))
        path.with_name(path.name + str(sysconfig.get_config_var("EXT_SUFFIX"))).unlink(missing_ok=True)


def _compile(root: Path, names: list[str], directory: Path) -> list[tuple[Path, Path]]:
    """Compile the modules. Return pairs of (built file, its path in the package)."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    with contextlib.chdir(root):
        sources = [Extension(name, [os.path.join(*name.split(".")) + ".py"]) for name in names]
        for source in sources:
            # For any machine of this platform: no flag may depend on the building machine.
            source.extra_compile_args = ["/O2"] if os.name == "nt" else ["-O3", "-g0"]
        extensions = cythonize(sources, build_dir=str(directory / "c"), force=True, quiet=True)
        command = build_ext(Distribution({"ext_modules": extensions}))
        command.build_lib = str(directory / "lib")
        command.build_temp = str(directory / "temp")
        command.ensure_finalized()
        command.run()
    return [(Path(path), Path(path).relative_to(directory / "lib")) for path in command.get_outputs()]
