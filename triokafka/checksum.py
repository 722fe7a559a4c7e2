"""CRC-32C, the checksum of record batches: the C function of the package ``crc32c``, without the rest of that package.

Importing all of it takes a fifteenth of a broker's start: it has a command line, and looks up its own version, for
which it imports ``argparse``, ``email`` and ``zipfile``. The extension itself reads its environment variables
(``CRC32C_SW_MODE``), so they apply here as well.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from crc32c import crc32c

__all__ = ["crc32c"]

_PACKAGE: Final = "crc32c"
_EXTENSION: Final = "crc32c._crc32c"


def _extension() -> ModuleType:
    """Load the extension under its real name, so that a later import of the package uses the same module."""
    if _PACKAGE not in sys.modules and _EXTENSION not in sys.modules:
        package = find_spec(_PACKAGE)  # looks for it, and runs nothing of it
        found = package and PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
        if found is not None and found.loader is not None:
            extension = module_from_spec(found)
            found.loader.exec_module(extension)
            sys.modules[_EXTENSION] = extension
    return import_module(_EXTENSION)


if not TYPE_CHECKING:
    crc32c = _extension().crc32c
