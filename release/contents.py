"""Reviews the contents of a wheel or an sdist: everything that users need, and nothing else."""

from __future__ import annotations

import re
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import Final

_ALLOWED_IN_WHEELS: Final = re.compile(
    r"triokafka/(?:[\w/]+\.(?:py|pxd)|[\w/]+\.cpython-[\w-]+\.so|py\.typed|console/static/\w+\.(?:css|js|svg|html))"
    r"|pyspark_triokafka\.py"
    r"|triokafka-[\w.]+\.dist-info/(?:METADATA|WHEEL|RECORD|entry_points\.txt|licenses/LICENSE)"
    r"|triokafka-[\w.]+\.dist-info/sboms/[\w.-]+\.json"  # auditwheel's list of the libraries that it added
)
_NEEDED_IN_WHEELS: Final = (
    "triokafka/py.typed", "triokafka/console/static/index.html", "triokafka/console/static/console.js",
    "triokafka/__main__.py", "triokafka/testing/plugin.py", "pyspark_triokafka.py",
)  # fmt: skip
_NEEDED_IN_SDISTS: Final = (
    "LICENSE", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "hatch_build.py", "PKG-INFO",
    "triokafka/py.typed", "tests/__init__.py", "examples/produce.py", "docs/index.md",
)  # fmt: skip
_STRAY: Final = re.compile(
    r"(^|/)(__pycache__|\.venv|\.git|\.interop|\.java|\.mypy_cache|dist|build)(/|$)|\.(pyc|so|c|o)$"
)
_FOREIGN: Final = re.compile(r"kafka-python|aiokafka|confluent-kafka|noida|mypy|ruff|hypothesis|sphinx", re.IGNORECASE)
_RELATIVE_LINK: Final = re.compile(r"\]\((?![a-z]+:|#)")


def faults_of(package: Path, *, compiled: bool = False) -> list[str]:
    """Return what is wrong with the package's files and metadata, one sentence each.

    Args:
        package: a ``.whl`` or a ``.tar.gz``.
        compiled: the wheel must have compiled kernels.
    """
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            names = [name for name in wheel.namelist() if not name.endswith("/")]  # auditwheel adds directories
            (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
            return _wheel_faults(names, compiled) + _metadata_faults(wheel.read(metadata).decode())
    with tarfile.open(package) as sdist:
        names = [str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in sdist.getnames()]
        (member,) = (name for name in sdist.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO"))
        content = sdist.extractfile(member)
        assert content is not None
        return _sdist_faults(names) + _metadata_faults(content.read().decode())


def _wheel_faults(names: list[str], compiled: bool) -> list[str]:
    faults = [f"{name} does not belong into a wheel" for name in names if not _ALLOWED_IN_WHEELS.fullmatch(name)]
    faults += [f"{name} is missing" for name in _NEEDED_IN_WHEELS if name not in names]
    if not any(name.endswith("/licenses/LICENSE") for name in names):
        faults.append("the licence is missing")
    if compiled != any(name.endswith(".so") for name in names):
        faults.append("there are no compiled kernels" if compiled else "a pure wheel has compiled kernels")
    return faults


def _sdist_faults(names: list[str]) -> list[str]:
    faults = [f"{name} does not belong into an sdist" for name in names if _STRAY.search(name)]
    return faults + [f"{name} is missing" for name in _NEEDED_IN_SDISTS if name not in names]


def _metadata_faults(text: str) -> list[str]:
    metadata: Message = message_from_string(text)
    faults = [
        f"the metadata names {requirement}, which users do not need"
        for requirement in metadata.get_all("Requires-Dist", [])
        if _FOREIGN.search(requirement)
    ]
    faults += [f"the metadata has the extra {extra}" for extra in metadata.get_all("Provides-Extra", [])
               if extra in ("dev", "docs", "interop", "dist")]  # fmt: skip
    for field in ("Project-URL", "Classifier", "License-Expression", "License-File", "Requires-Python", "Keywords"):
        if field not in metadata:
            faults.append(f"the metadata has no {field}")
    links = _RELATIVE_LINK.findall(str(metadata.get_payload()))
    return faults + ([f"{len(links)} links of the description are relative"] if links else [])
