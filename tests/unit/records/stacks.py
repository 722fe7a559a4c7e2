"""The records package twice: as it runs here, and with the plain twins.

Every test that takes ``stack`` runs on both where the compiled kernels are there, and on the plain ones alone where
they are not (``TRIOKAFKA_PURE=1``, or no C compiler).
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any
from unittest import mock

import triokafka
import triokafka.records
from triokafka import kernels


class Stack:
    """One copy of ``triokafka.records`` and its kernels."""

    def __init__(self, name: str, records: ModuleType) -> None:
        self.name = name
        self.records: Any = records
        self.kernel: Any = sys.modules["triokafka.records.kernel"]
        self.decoder: Any = sys.modules["triokafka.records.decoder"]
        for module in (self.records, self.kernel):  # what is else loaded when it is used, while this copy is the one
            for each in module.__all__:
                getattr(module, each)

    def __repr__(self) -> str:
        return self.name


def _fresh_plain_copy() -> Stack:
    """Import the package again with ``TRIOKAFKA_PURE=1``, and put everything back."""
    ours = {name: module for name, module in sys.modules.items() if name.startswith("triokafka.records")}
    before = triokafka.records
    for name in ours:
        del sys.modules[name]
    try:
        with mock.patch.dict(os.environ, {"TRIOKAFKA_PURE": "1"}):
            return Stack("plain", importlib.import_module("triokafka.records"))
    finally:
        for name in [name for name in sys.modules if name.startswith("triokafka.records")]:
            del sys.modules[name]
        sys.modules.update(ours)
        triokafka.records = before


def _stacks() -> list[Stack]:
    here = Stack(kernels.implementation(), triokafka.records)
    return [here] if here.name == "plain" else [here, _fresh_plain_copy()]


STACKS = _stacks()
