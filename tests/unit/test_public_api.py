"""The public names of the package, and the cost of importing it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import triokafka

_HEAVY = ("construct", "crc32c", "pyarrow", "pyspark", "pandas", "numpy", "pytest")
PACKAGE = Path(triokafka.__file__).parent
LAZY = (
    *("triokafka", "triokafka.asyncio", "triokafka.blocking"),
    *("triokafka.formats", "triokafka.spark", "triokafka.testing"),
)
"""Packages whose names load when they are first used."""


def run_python(program: str) -> str:
    """Return the output of a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent, timeout=60
    )
    return done.stdout.strip()


def test_importing_the_package_imports_nothing_heavy() -> None:
    """Names load lazily: not even trio is needed before something is used."""
    program = f"import sys, triokafka; print([name for name in {(*_HEAVY, 'trio')} if name in sys.modules])"
    assert run_python(program) == "[]"


def test_clients_need_no_optional_package() -> None:
    program = f"""
import sys, triokafka
for name in ("Producer", "Consumer", "AdminClient", "RangeReader"):
    getattr(triokafka, name)
print([name for name in {tuple(name for name in _HEAVY if name not in ("construct", "crc32c"))} if name in sys.modules])
"""
    assert run_python(program) == "[]"


def test_clients_import_nothing_that_only_says_versions() -> None:
    """To import what reads the metadata of packages takes as long as half of a client."""
    program = """
import sys, triokafka
for name in ("Producer", "Consumer", "AdminClient", "RangeReader"):
    getattr(triokafka, name)
print([name for name in ("argparse", "email", "importlib.metadata", "zipfile") if name in sys.modules])
"""
    assert run_python(program) == "[]"
    assert run_python("import triokafka; print(triokafka.__version__[:1].isdecimal())") == "True"


@pytest.mark.parametrize("name", triokafka.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(triokafka, name) is not None


@pytest.mark.parametrize("name", triokafka.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(triokafka, name)
    if not isinstance(value, str):
        assert (inspect.getdoc(value) or "").strip(), f"{name} has no docstring"


@pytest.mark.parametrize("package", LAZY)
def test_dir_has_every_public_name_before_its_first_use(package: str) -> None:
    program = f"import {package} as package; print(sorted(set(package.__all__) - set(dir(package))))"
    assert run_python(program) == "[]"
    names = list(import_module(package).__all__)
    assert names == sorted(names)


@pytest.mark.parametrize("package", LAZY)
def test_completion_offers_only_public_names_and_submodules(package: str) -> None:
    program = f"""
import importlib.util, {package} as package
print([
    name
    for name in dir(package)
    if name[0] != "_" and name not in package.__all__ and importlib.util.find_spec(f"{package}.{{name}}") is None
])
"""
    assert run_python(program) == "[]"


def _seen_by_type_checkers(package: str) -> dict[str, str]:
    """The names that a package imports for type checkers, with the module of each."""
    path = PACKAGE.joinpath(*package.split(".")[1:], "__init__.py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: f"{node.module}" for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_the_names_that_exist(package: str) -> None:
    """A package imports for type checkers exactly the names that it loads on first use, from the same modules."""
    module: Any = import_module(package)
    seen = _seen_by_type_checkers(package)
    submodules = getattr(module, "_MODULES", ())
    prefix = "" if next(iter(module._HOMES.values())).startswith("triokafka.") else f"{package}."
    homes = {name: prefix + home for name, home in module._HOMES.items()}
    assert seen == homes | dict.fromkeys(submodules, package)
    eager = {name for name in module.__all__ if name in vars(module) and name not in homes and name not in submodules}
    assert set(module.__all__) <= {*seen, *eager, "__version__"}


def test_every_package_that_loads_names_lazily_is_in_this_list() -> None:
    lazy = [path for path in PACKAGE.rglob("*.py") if _has_getattr(ast.parse(path.read_text(encoding="utf-8")))]
    pages = {PACKAGE.joinpath(*package.split(".")[1:], "__init__.py") for package in LAZY}
    assert set(lazy) - {PACKAGE / "records" / "__init__.py", PACKAGE / "records" / "kernel.py"} == pages


def test_no_module_offers_type_checkers_a_getattr() -> None:
    """A ``__getattr__`` of a module that type checkers see gives every misspelled name a type."""
    open_modules = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(
            isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
            for node in ast.parse(path.read_text(encoding="utf-8")).body
        )
    ]
    assert open_modules == []


def _has_getattr(tree: ast.Module) -> bool:
    statements = [*tree.body, *(inner for node in tree.body if isinstance(node, ast.If) for inner in node.body)]
    return any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in statements)


@pytest.mark.parametrize("package", LAZY)
def test_star_import_and_help_work(package: str) -> None:
    program = f"""
import pydoc, {package} as package
names = {{}}
exec("from {package} import *", names)
missing = [name for name in package.__all__ if name != "__version__" and name not in names]
text = pydoc.render_doc(package, renderer=pydoc.plaintext)
print(missing, [name for name in package.__all__ if name != "__version__" and name not in text])
"""
    assert run_python(program) == "[] []"


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'triokafka' has no attribute 'Produzer'"):
        _ = triokafka.Produzer  # type: ignore[attr-defined]


def test_types_are_shipped() -> None:
    """The marker of PEP 561."""
    assert (PACKAGE / "py.typed").is_file()


def test_every_package_has_a_docstring() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path} has no docstring"
        assert [other for other in path.parent.iterdir() if other != path and other.name != "__pycache__"], path.parent
