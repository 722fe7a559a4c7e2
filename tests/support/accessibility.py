"""Looks for accessibility problems of a page in the headless browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tests.support.browser import Page

_SCRIPT: Final = Path(__file__).with_name("accessibility.js").read_text("utf-8")
_AXE: Final = os.environ.get("TRIOKAFKA_AXE")
"""Path of axe.min.js, to check with axe-core, too."""
_AXE_RUN: Final = """axe.run({preload: false}).then((found) =>
    found.violations.map((one) => `${one.id} ${one.nodes.map((node) => node.html.slice(0, 200)).join(" ")}`))"""


async def problems(page: Page) -> list[str]:
    """Return the accessibility problems of the page."""
    found: list[str] = await page.run(_SCRIPT)
    if _AXE is not None:
        await page.run(Path(_AXE).read_text("utf-8") + "; true")
        found += await page.run(_AXE_RUN)
    return found
