"""Tests that need peers run in ``make interop`` only."""

from __future__ import annotations

from pathlib import Path

INTEROP = Path(__file__).parents[1] / "interop"


def test_every_module_of_interop_has_the_mark() -> None:
    modules = {path.name: path.read_text(encoding="utf-8") for path in INTEROP.glob("test_*.py")}
    assert len(modules) > 40
    assert [name for name, text in modules.items() if "pytest.mark.interop" not in text] == []
