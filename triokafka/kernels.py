"""Which modules exist twice, compiled and plain, and which of the two runs.

A compiled module is Cython in pure-Python mode: its ``.py`` file is only ever the source of an extension, and is never
imported as Python. When the extension is not there, or ``TRIOKAFKA_PURE=1`` is set, the plain twin serves. The build
(``hatch_build.py``) reads the same table, so this module imports nothing but the standard library.
"""

from __future__ import annotations

import importlib
import os
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from types import ModuleType
from typing import Final, Literal

TWINS: Final[dict[str, str]] = {
    "triokafka.records._appender": "triokafka.records.plain_appender",
    "triokafka.records._columns": "triokafka.records.plain_columns",
    "triokafka.records._kernel": "triokafka.records.plain_kernel",
}
"""Module to compile -> its plain twin."""


def wants_plain() -> bool:
    """Whether the environment asks for the plain twins."""
    return os.environ.get("TRIOKAFKA_PURE", "") not in ("", "0")


def is_compiled(name: str) -> bool:
    """Whether the extension of a module of the table is there. Imports nothing of it."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def load(name: str) -> ModuleType:
    """The compiled module of that name, or its plain twin."""
    use_compiled = not wants_plain() and is_compiled(name)
    return importlib.import_module(name if use_compiled else TWINS[name])


def implementation() -> Literal["compiled", "plain"]:
    """``compiled`` when every module of the table runs compiled, else ``plain``."""
    if not wants_plain() and all(is_compiled(name) for name in TWINS):
        return "compiled"
    return "plain"
