"""The modules that exist both compiled and plain, and the choice between the two.

A compiled module is Cython in pure-Python mode: its ``.py`` file is only ever the source of an extension, and is never
imported as Python. When the extension is not there, or ``TRIOKAFKA_PURE=1`` is set, the plain twin serves. The build
(``hatch_build.py``) reads the same table, so this module imports nothing but the standard library.
"""

from __future__ import annotations

import importlib
import os
import warnings
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from types import ModuleType
from typing import Final, Literal

TWINS: Final[dict[str, str]] = {
    "triokafka.client.producer._fast_path": "triokafka.client.producer.plain_fast_path",
    "triokafka.client.producer._lz4_worker": "triokafka.client.producer.plain_lz4_worker",
    "triokafka.records._appender": "triokafka.records.plain_appender",
    "triokafka.records._arrow_buffers": "triokafka.records.plain_arrow_buffers",
    "triokafka.records._columns": "triokafka.records.plain_columns",
    "triokafka.records._compressed_survey": "triokafka.records.plain_compressed_survey",
    "triokafka.records._from_columns": "triokafka.records.plain_from_columns",
    "triokafka.records._kernel": "triokafka.records.plain_kernel",
    "triokafka.records._survey": "triokafka.records.plain_survey",
}
"""Module to compile -> its plain twin. All run compiled, or none: they share types."""

INDEPENDENT: Final[dict[str, str]] = {
    "triokafka.asyncio.producer._sending": "triokafka.asyncio.producer.plain_sending",
    "triokafka.records._cursor": "triokafka.records.plain_cursor",
}
"""As `TWINS`, for modules that share no types with others: each runs compiled if its own extension is usable."""


def wants_plain() -> bool:
    """Whether the environment asks for the plain twins."""
    return os.environ.get("TRIOKAFKA_PURE", "") not in ("", "0")


def is_compiled(name: str) -> bool:
    """Whether the extension of a module of the table exists. Does not import it."""
    return bool(_extension(name))


@cache
def _extension(name: str) -> str:
    """The file of a module's extension; empty when it is missing."""
    spec = find_spec(name)
    found = (spec and spec.origin) or ""
    return found if found.endswith(tuple(EXTENSION_SUFFIXES)) else ""


def load(name: str) -> ModuleType:
    """The compiled module of that name, or its plain twin."""
    if name in INDEPENDENT:
        compiled = not wants_plain() and _extensions_are_usable((name,))
        return importlib.import_module(name if compiled else INDEPENDENT[name])
    return importlib.import_module(name if implementation() == "compiled" else TWINS[name])


def implementation() -> Literal["compiled", "plain"]:
    """The kind that runs of the modules of `TWINS`."""
    return "compiled" if not wants_plain() and _extensions_are_usable(tuple(TWINS)) else "plain"


@cache
def _extensions_are_usable(names: tuple[str, ...]) -> bool:
    if not all(is_compiled(name) for name in names):
        return False
    stale = _stale(names)
    if stale:
        warnings.warn(
            f"{', '.join(stale)}: the source is newer than the compiled extension, so plain Python runs;"
            " build again with: pip install -e .",
            RuntimeWarning,
            stacklevel=4,
        )
    return not stale


def _stale(names: tuple[str, ...]) -> list[str]:
    """Modules of a checkout whose source changed after its compilation. Installed files are never stale."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not os.path.exists(os.path.join(root, "pyproject.toml")):
        return []
    folders = {os.path.join(root, *name.split(".")[:-1]) for name in names}
    shared = [os.path.join(folder, file) for folder in folders for file in os.listdir(folder) if file.endswith(".pxd")]
    declared = max(map(os.path.getmtime, shared), default=0.0)  # what kernels declare for each other
    found = []
    for name in names:
        source = os.path.join(root, *name.split(".")) + ".py"
        if max(declared, os.path.getmtime(source)) > os.path.getmtime(_extension(name)):
            found.append(name)
    return found
