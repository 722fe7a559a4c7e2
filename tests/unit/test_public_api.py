"""The front page of the package: what it names, and what importing it costs."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import triokafka

_HEAVY = ("construct", "crc32c", "pyarrow", "pyspark", "pandas", "numpy", "pytest")
PACKAGE = Path(triokafka.__file__).parent


def run_python(program: str) -> str:
    """What a program prints in a process of its own."""
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
def test_every_public_name_says_what_it_is(name: str) -> None:
    value = getattr(triokafka, name)
    if not isinstance(value, str):
        assert (inspect.getdoc(value) or "").strip(), f"{name} has no docstring"


def test_dir_has_every_public_name_before_its_first_use() -> None:
    program = "import triokafka; print(sorted(set(triokafka.__all__) - set(dir(triokafka))))"
    assert run_python(program) == "[]"
    assert list(triokafka.__all__) == sorted(triokafka.__all__)


def test_completion_offers_nothing_that_is_of_other_modules() -> None:
    program = (
        "import triokafka; print([name for name in dir(triokafka) if name[0] != '_' and name not in triokafka.__all__])"
    )
    assert run_python(program) == "[]"


def test_type_checkers_see_the_names_that_exist() -> None:
    """What is imported for type checkers is what is loaded at run time, and what ``__all__`` says."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: f"{node.module}" for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert {*seen, "__version__"} == set(triokafka.__all__)
    homes = triokafka._HOMES
    assert {name: home for name, home in seen.items() if name in homes} == homes


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'triokafka' has no attribute 'Produzer'"):
        _ = triokafka.Produzer  # type: ignore[attr-defined]


def test_star_import_brings_the_public_names() -> None:
    program = "from triokafka import *; print(Producer.__name__, read_topic.__name__)"
    assert run_python(program) == "Producer read_topic"


def test_types_are_shipped() -> None:
    """The marker of PEP 561."""
    assert (PACKAGE / "py.typed").is_file()


def test_every_package_says_what_lives_there() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path} has no docstring"
        assert [other for other in path.parent.iterdir() if other != path and other.name != "__pycache__"], path.parent
