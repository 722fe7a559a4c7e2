"""Sphinx extension: diagrams of ``docs/images`` become part of the page, not images in it.

So their text can be selected and searched, and they follow the page's choice of dark or light. A diagram that is wider
than the window scrolls in its own frame. Elsewhere, as on GitHub, the Markdown shows the same files as images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from docutils import nodes

_FOLDER: Final = "images/"
_FRAME: Final = 'class="diagram" tabindex="0" role="group" aria-label="Diagram"'


def _inline(app: Any, doctree: nodes.document, page: str) -> None:
    del page
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        uri = str(image.get("uri", ""))
        if uri.startswith(_FOLDER) and uri.endswith(".svg"):
            text = (Path(app.srcdir) / uri).read_text(encoding="utf-8")
            text = text.replace('class="dg" ', 'class="dg" style="min-width:620px;max-width:100%;height:auto" ', 1)
            image.replace_self(nodes.raw("", f"<div {_FRAME}>{text}</div>", format="html"))


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-resolved", _inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
