"""The files that a run leaves in ``benchmarks/results``: JSON with the machine's description, and a picture."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Protocol

from triokafka import kernels

RESULTS: Final = Path(__file__).parent / "results"
PEERS: Final = ("kafka-python", "aiokafka", "confluent-kafka", "noida-db", "crc32c", "trio")


class Parts(Protocol):
    """Return the findings of a run in parts: lists of named tuples, and the texts of ``failures``, or one named
    tuple."""

    @property
    def failures(self) -> list[str]:
        """The measurements that failed, with reasons."""

    def _asdict(self) -> dict[str, Any]: ...


def as_document(found: Parts) -> dict[str, Any]:
    """Return the findings for JSON."""
    rows = {name: [row._asdict() for row in part] for name, part in found._asdict().items() if name != "failures"}
    return {**rows, "failures": found.failures}


def save(name: str, findings: Mapping[str, Any], figure: Any) -> None:
    """Write ``findings`` with the machine's description, and the matplotlib figure."""
    RESULTS.mkdir(exist_ok=True)
    document = {
        "table": name,
        "kernels": kernels.implementation(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {peer: metadata.version(peer) for peer in PEERS},
        **findings,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1, default=str) + "\n")
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=120)
