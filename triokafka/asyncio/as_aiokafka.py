"""`install_as_aiokafka`: frameworks that import aiokafka themselves get `triokafka.asyncio`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

from triokafka.asyncio.records import return_dataclasses

_OURS = "triokafka.asyncio"


def install_as_aiokafka() -> None:
    """Register `triokafka.asyncio` and its modules under aiokafka's names for later imports in this process.

    Call it before anything imports aiokafka, which need not be installed. A second call does nothing. From then on
    consumers return records that are aiokafka's dataclass, because frameworks add attributes to them.

    Raises:
        RuntimeError: aiokafka itself is imported already.
    """
    package = importlib.import_module(_OURS)
    present = sys.modules.setdefault("aiokafka", package)
    if present is not package:
        raise RuntimeError("aiokafka is imported already: call install_as_aiokafka() before the first import of it")
    return_dataclasses()
    for module in pkgutil.walk_packages(package.__path__, f"{_OURS}."):
        if not module.name.rpartition(".")[2].startswith("_"):
            sys.modules[f"aiokafka{module.name.removeprefix(_OURS)}"] = importlib.import_module(module.name)
