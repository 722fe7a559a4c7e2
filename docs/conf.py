"""How the site is built: ``make docs`` writes it to ``docs/site``.

The pages are the Markdown files of this directory, which read well without the site too. `docs/index.md` is the one
list of them: what it links to is the contents of the side bar, under its headings.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any, Final

from docutils import nodes

import triokafka

DOCS: Final = Path(__file__).parent

project = "triokafka"
version = release = triokafka.__version__
copyright = "triokafka's authors"  # Sphinx's name

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "docs.inline_svg"]
exclude_patterns = ["site", "reference/index.md"]  # that index is the list of groups of the side bar
suppress_warnings = [
    "myst.xref_missing",  # links out of docs/, to examples and tests, which lead there in a checkout
    "myst.strikethrough",  # "only in HTML": this is HTML
]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"triokafka {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_search_summary = False  # the theme's own excerpts fetch pages, which a page opened from a file may not
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
default_role = "code"
highlight_language = "text"  # a block without a language is output, or a command
myst_enable_extensions = ["strikethrough"]
myst_heading_anchors = 4
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
napoleon_custom_sections = [("Iterating raises", "Raises")]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"

_HEADING: Final = re.compile(r"^## (.*)$", re.MULTILINE)
_LAYOUT: Final = re.compile(r"^<!-- (cards|beside) -->\n(.*?)^<!-- end of \1 -->$", re.MULTILINE | re.DOTALL)
_EXAMPLE: Final = re.compile(r"^<!-- example (\w+\.py) -->$", re.MULTILINE)
_EMPTY_HEADING: Final = re.compile(r'<th class="head([^"]*)">(?:<p></p>)?</th>')
_CELL: Final = re.compile(r"<td>.*?</td>", re.DOTALL)
_NAME: Final = re.compile(r'(?<=<span class="pre">)[^<]{12,}(?=</span>)')
_SHORT: Final = re.compile(r'<span class="pre">(?=[^<]{1,20}</span>)')
_TEXT: Final = re.compile(r">[^<]+<")
_LONG_WORD: Final = re.compile(r"\b[A-Za-z]{18,}\b")
_JOINT: Final = re.compile(r"[._/,[](?=\w)|(?<=[a-z])(?=[A-Z])")
_NOT_THE_SUBJECT: Final = ("The programs of this page", "pip install")
_PAGE: Final = re.compile(r"\]\(((?:[\w-]+/)*[\w-]+)\.md(?:#[\w-]*)?\)")


def contents_of(index: str, folder: str = "") -> str:
    """The side bar: for each heading of an index its pages, in their order, each once.

    Args:
        index: the text of ``index.md``, or of an index of other pages.
        folder: the folder of that index, with a slash at its end.
    """
    seen: set[str] = set()
    parts = []
    titles = _HEADING.split(index)[1:]
    for title, text in zip(titles[::2], titles[1::2], strict=True):
        pages = [page for page in dict.fromkeys(_PAGE.findall(text)) if page not in seen]
        seen.update(pages)
        if pages:
            listed = [f"{folder}{page}" for page in pages]
            parts.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *listed, "```"]))
    return "\n\n".join(parts)


def _add_contents(app: Any, page: str, source: list[str]) -> None:
    if page == "index":  # made on demand, and so not linked to by the page that is kept in the repository
        reference = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
        source[0] += "\n\n" + contents_of(source[0]) + "\n\n" + contents_of(reference, "reference/")
    elif page == "reference/messages":
        source[0] += "\n\n" + re.sub(r"^:caption:.*\n", "", contents_of(source[0]), flags=re.MULTILINE)


def with_layout(text: str) -> str:
    """Return a page with the parts between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` in boxes of that class.

    ``<!-- example FILE -->`` becomes the text of that example. The comments are invisible where the page is shown
    without the site.
    """
    text = _EXAMPLE.sub(r"```{literalinclude} /../examples/\1\n:language: python\n```", text)
    return _LAYOUT.sub(lambda found: f"`````{{container}} {found[1]}\n{found[2].strip()}\n`````", text)


def _add_layout(app: Any, page: str, source: list[str]) -> None:
    source[0] = with_layout(source[0])


def description_of(text: str, length: int = 160) -> str:
    """Return the first sentences of a paragraph that fit into ``length`` characters, or its start."""
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    fitting = text[: length + 1]
    end = max(fitting.rfind(mark) for mark in (". ", ": ", "; "))
    return fitting[: end + 1].rstrip(":;") if end > length // 3 else fitting[: fitting.rfind(" ", 0, length)] + " …"


def _add_description(app: Any, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Give each page a description for search engines and previews: its first paragraph."""
    if tree is None:
        return
    paragraphs = (one.astext() for one in tree.findall(nodes.paragraph) if isinstance(one.parent, nodes.section))
    first = next((text for text in paragraphs if not text.startswith(_NOT_THE_SUBJECT)), context.get("title", project))
    described = html.escape(description_of(first), quote=True)
    context["metatags"] = context.get("metatags", "") + f'\n<meta name="description" content="{described}">'


def _mend_markup(app: Any, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Complete what screen readers need; let long names in tables break, and keep short code on one line.

    The side bar's headings get a level, and an empty cell of a table is no heading.
    """
    tree_of_pages = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree_of_pages.replace('role="heading"', 'role="heading" aria-level="2"')
    body = _EMPTY_HEADING.sub(r'<td class="head\1"></td>', context.get("body", ""))
    body = _CELL.sub(lambda cell: _TEXT.sub(_with_breakable_words, _NAME.sub(_breakable, cell[0])), body)
    context["body"] = _SHORT.sub('<span class="pre short">', body)


def _breakable(name: re.Match[str]) -> str:
    return _JOINT.sub(r"\g<0><wbr>", name[0])


def _with_breakable_words(text: re.Match[str]) -> str:
    return _LONG_WORD.sub(_breakable, text[0])


def texts_of(tree: nodes.document) -> dict[str, str]:
    """The text of each section of a page by the section's anchor, for excerpts of search results."""
    texts = {}
    for section in tree.findall(nodes.section):
        shown = [child for child in section.children if not isinstance(child, nodes.section | nodes.title | nodes.raw)]
        words = [
            " ".join(text.astext().split())
            for child in shown
            for text in child.findall(nodes.TextElement)
            if not isinstance(text, nodes.comment) and not isinstance(text.parent, nodes.TextElement)
        ]
        texts[section["ids"][0]] = " ".join(filter(None, words))
    return texts


def _write_texts(app: Any, error: Exception | None) -> None:
    """Write the texts of all pages as a script: a page opened from a file can load scripts, and nothing else."""
    if error is None and app.builder.name == "html":
        texts = {page: texts_of(app.env.get_doctree(page)) for page in sorted(app.env.found_docs)}
        script = f"const SEARCH_TEXTS = {json.dumps(texts, ensure_ascii=False, separators=(',', ':'))};\n"
        (Path(app.outdir) / "_static" / "search-texts.js").write_text(script, encoding="utf-8")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _add_contents)
    app.connect("source-read", _add_layout)
    app.connect("html-page-context", _add_description)
    app.connect("html-page-context", _mend_markup, priority=900)  # after the theme's own
    app.connect("build-finished", _write_texts)
