"""Lists the parts of an installation: a bill of materials (CycloneDX) and the licences of the packages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from release.environments import CleanEnvironment, run

EXTRAS: Final = ("cli", "compression", "console", "formats", "keystores", "oauth", "otel", "patterns")
"""The extras for production that need nothing but wheels; Spark and Java bring hundreds of megabytes."""


def write_inventory(environment: CleanEnvironment, directory: Path, name: str) -> list[Path]:
    """Write ``NAME.cdx.json`` and ``NAME-licences.md`` for the packages of an environment; return the paths."""
    bill = directory / f"{name}.cdx.json"
    run([sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON",
         "-o", str(bill), environment.python])  # fmt: skip
    licences = directory / f"{name}-licences.md"
    table = run([sys.executable, "-m", "piplicenses", f"--python={environment.python}", "--format=markdown",
                 "--from=mixed", "--with-urls", "--order=name"])  # fmt: skip
    licences.write_text(f"# Licences of {name} and the packages that it installs\n\n{table}", encoding="utf-8")
    return [bill, licences]
