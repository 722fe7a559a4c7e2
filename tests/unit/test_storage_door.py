"""Only the world opens files, so that everything a broker or client stores can be on a simulated disk."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "triokafka"

_OUTSIDE_ANY_WORLD = {
    "world/os_storage.py": "the door itself",
    "world/file_slice.py": "its open files",
    "world/doorbell.py": "its pipes",
    "world/pem_memory.py": "OpenSSL reads certificates from files: these are in memory, or deleted at once",
    "world/http.py": "the door to identity providers, in a worker thread",
    "world/socket_stream.py": "asks a socket of the operating system for its queue",
    "world/process_memory.py": "memory of this process, and the limit of its control group",
    "world/process_usage.py": "what this process uses, from the files of the operating system's kernel",
    "world/system.py": "the number of processors and the kernel's randomness",
    "asyncio/stepped_run.py": "copies the descriptor of Trio's epoll, for the asyncio loop",
    "kernels.py": "runs at import, before there is any world: looks whether compiled modules are up to date",
    "cli/": "reads what its user names and writes reports, in its own process; the broker it runs has a world",
    "security/kerberos/login.py": "tells versions of a keytab apart, which the Kerberos library reads from its file",
    "client/producer/plain_lz4_worker.py": "rings the world's doorbell from a thread, as its compiled twin does",
    "formats/registry.py": "asks a schema registry over HTTP, blocking, in the caller's thread or in a Spark worker",
    "spark/": "runs inside Spark's Python workers, and keeps nothing",
}
_FILE_MODULES = {"fcntl", "fileinput", "glob", "io", "mmap", "pathlib", "shelve", "shutil", "sqlite3", "tempfile"}
_NETWORK_MODULES = {"ftplib", "http", "urllib"}
_HARMLESS = {
    "os": {
        *("environ", "fspath", "getenv", "getpid", "cpu_count", "sched_getaffinity", "strerror", "path", "PathLike"),
        "register_at_fork",
    },
    "os.path": {"basename", "commonpath", "dirname", "isabs", "join", "normpath", "split", "splitext", "sep"},
    "io": {"BytesIO", "StringIO"},
    "urllib.parse": {"quote_plus", "unquote", "urlsplit"},
}


def file_accesses(source: str) -> Iterator[str]:
    """Every place in a module's text that uses the file system without the world."""
    tree = list(ast.walk(ast.parse(source)))
    is_a_variable = any(_binds_open(node) for node in tree)
    for node in tree:
        match node:
            case ast.Call(func=ast.Name(id="open")):
                yield f"line {node.lineno}: open"
            case ast.Name(id="open") if not is_a_variable:
                yield f"line {node.lineno}: open"
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.partition(".")[0] in (_FILE_MODULES | _NETWORK_MODULES) - {"io"}:
                        yield f"line {node.lineno}: import {alias.name}"
            case ast.ImportFrom(module=str(module), names=names, level=0):
                harmless = _HARMLESS.get(module, set())
                if module in _HARMLESS or module.partition(".")[0] in _FILE_MODULES | _NETWORK_MODULES:
                    for alias in names:
                        if alias.name not in harmless:
                            yield f"line {node.lineno}: from {module} import {alias.name}"
            case ast.Attribute(value=value, attr=attribute):
                owner = ast.unparse(value)
                if owner in _HARMLESS and attribute not in _HARMLESS[owner]:
                    yield f"line {node.lineno}: {owner}.{attribute}"
            case _:
                pass


def _binds_open(node: ast.AST) -> bool:
    match node:
        case ast.Name(id="open", ctx=ast.Store()) | ast.FunctionDef(name="open"):
            return True
        case _:
            return False


def test_only_the_world_opens_files() -> None:
    """Ruff's ban does not cover the built-in ``open``."""
    found = [
        f"{name}, {access}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith(tuple(_OUTSIDE_ANY_WORLD))
        for access in file_accesses(path.read_text(encoding="utf-8"))
    ]
    assert not found, "use World.storage:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "open('f')",
        "opener = open",
        "import os\nos.open('f', 0)",
        "import os\nos.path.exists('f')",
        "import os\nos.replace('a', 'b')",
        "from os import fsync",
        "from os.path import getsize",
        "from pathlib import Path",
        "import shutil",
        "import urllib.request",
        "from urllib.request import urlopen",
        "from http import client",
        "import io\nio.FileIO('f')",
        "def f():\n    import tempfile",
    ],
)
def test_the_check_sees_every_way_around_the_door(source: str) -> None:
    assert list(file_accesses(source))


@pytest.mark.parametrize(
    "source",
    [
        "storage.open('f')",
        "import os\nos.path.join('a', 'b')",
        "import io\nio.BytesIO()",
        "open = queue.open\nopen.size",
    ],
)
def test_the_check_lets_the_harmless_pass(source: str) -> None:
    assert not list(file_accesses(source))
