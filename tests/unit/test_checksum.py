"""CRC-32C comes from the extension of the package ``crc32c``, without what that package imports besides."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import triokafka
from triokafka.checksum import crc32c


def run_python(program: str, **environment: str) -> str:
    """Return the output of a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=os.environ | {"PYTHONPATH": str(Path(triokafka.__file__).parent.parent)} | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))])
def test_checksum_is_crc_32c(kind: type) -> None:
    """The check value of the catalogue of CRCs; and the one of RFC 3720, B.4."""
    assert crc32c(kind(b"123456789")) == 0xE3069283
    assert crc32c(kind(bytes(32))) == 0x8A9136AA
    assert crc32c(kind(b"6789"), crc32c(kind(b"12345"))) == 0xE3069283


def test_nothing_is_imported_but_the_extension() -> None:
    program = "import sys, triokafka.checksum; print(*sorted(name for name in sys.modules if 'crc32c' in name))"
    assert run_python(program) == "crc32c._crc32c"


@pytest.mark.parametrize("first", ["crc32c", "crc32c._crc32c", "triokafka.checksum"])
def test_package_has_the_same_function_whichever_is_imported_first(first: str) -> None:
    program = f"import {first}, crc32c, triokafka.checksum; print(crc32c.crc32c is triokafka.checksum.crc32c)"
    assert run_python(program) == "True"
    also = "from crc32c import _crc32c, CRC32CHash, __version__; print(CRC32CHash(b'123456789').checksum)"
    assert run_python(f"import {first}; {also}") == str(0xE3069283)


def test_extension_that_is_no_file_comes_with_its_package() -> None:
    """As in programs that are packed into one file, whose modules are found by other means."""
    program = f"""
import importlib.machinery, sys
importlib.machinery.PathFinder = type("PathFinder", (), {{"find_spec": staticmethod(lambda *_: None)}})
import triokafka.checksum
print("crc32c" in sys.modules, triokafka.checksum.crc32c(b"123456789") == {0xE3069283})
"""
    assert run_python(program) == "True True"


@pytest.mark.parametrize("mode", ["force", "none"])
def test_environment_of_the_package_counts(mode: str) -> None:
    program = "import sys, triokafka.checksum; print(sys.modules['crc32c._crc32c'].hardware_based)"
    usual = run_python(program)
    assert run_python(program, CRC32C_SW_MODE=mode) == ("False" if mode == "force" else usual)
