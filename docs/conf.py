"""How the site is built: ``make docs`` writes it to ``docs/site``.

The pages are the Markdown files of this directory, which read well without the site too. `docs/index.md` is the one
list of them: what it links to is the contents of the side bar, under its headings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import triokafka

DOCS: Final = Path(__file__).parent

project = "triokafka"
version = release = triokafka.__version__
copyright = "triokafka's authors"  # Sphinx's name

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "docs.inline_svg"]
exclude_patterns = ["site"]
suppress_warnings = ["myst.xref_missing"]  # links out of docs/, to examples and tests, which lead there in a checkout
html_theme = "furo"
html_title = f"triokafka {version}"
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
default_role = "code"
myst_heading_anchors = 4
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
napoleon_custom_sections = [("Iterating raises", "Raises")]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"

_HEADING: Final = re.compile(r"^## (.*)$", re.MULTILINE)
_PAGE: Final = re.compile(r"\]\(((?:[\w-]+/)*[\w-]+)\.md(?:#[\w-]*)?\)")


def contents_of(index: str) -> str:
    """The side bar: for each heading of the index its pages, in their order, each once.

    Args:
        index: the text of ``index.md``.
    """
    seen: set[str] = set()
    parts = []
    titles = _HEADING.split(index)[1:]
    for title, text in zip(titles[::2], titles[1::2], strict=True):
        pages = [page for page in dict.fromkeys(_PAGE.findall(text)) if page not in seen]
        seen.update(pages)
        parts.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```"]))
    return "\n\n".join(parts)


def _add_contents(app: Any, page: str, source: list[str]) -> None:
    if page in ("index", "reference/index"):
        source[0] += "\n\n" + contents_of(source[0])
    if page == "index":  # made on demand, and so not linked to by the page that is kept in the repository
        source[0] += "\n\n```{toctree}\n:hidden:\n:caption: From the code\n\nreference/index\n```"


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _add_contents)
