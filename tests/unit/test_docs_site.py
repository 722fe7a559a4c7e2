"""The site's contents come from one list, and every public name has its place in the reference."""

from __future__ import annotations

import inspect
import pkgutil
import re
from typing import Any

import docutils.core
import docutils.nodes
import pytest
from sphinx.ext import napoleon
from sphinx.ext.napoleon.docstring import GoogleDocstring

import triokafka
from docs import conf, python_api


def test_every_page_is_in_the_side_bar() -> None:
    shown = set(re.findall(r"^([\w/-]+)$", conf.contents_of((conf.DOCS / "index.md").read_text("utf-8")), re.MULTILINE))
    pages = {str(page.relative_to(conf.DOCS)).removesuffix(".md") for page in conf.DOCS.rglob("*.md")}
    pages_in_source = {page for page in pages if not page.startswith(("reference/", "site/")) and page != "index"}
    assert pages_in_source == shown


def test_a_page_is_listed_once_under_the_first_heading_that_names_it() -> None:
    contents = conf.contents_of(
        "# t\n\n## One\n\n[a](a.md) [b](b/c.md#d)\n\n## Two\n\n[a](a.md) [e](e.md) [x](../x.md)\n"
    )
    assert contents == (
        "```{toctree}\n:hidden:\n:caption: One\n\na\nb/c\n```\n\n```{toctree}\n:hidden:\n:caption: Two\n\ne\n```"
    )


def test_layout_comments_become_boxes() -> None:
    assert conf.with_layout("a\n\n<!-- cards -->\n- x\n\n- y\n<!-- end of cards -->\n\nb\n") == (
        "a\n\n`````{container} cards\n- x\n\n- y\n`````\n\nb\n"
    )


@pytest.mark.parametrize(
    ("paragraph", "description"),
    [
        ("One\nline. Two.", "One line. Two."),
        (f"{'First ' * 20}end. {'second ' * 20}", f"{'First ' * 20}end."),
        ("word " * 60, f"{('word ' * 32).strip()} …"),
    ],
)
def test_description_is_the_first_sentences_that_fit(paragraph: str, description: str) -> None:
    assert conf.description_of(paragraph) == description


def test_excerpts_of_search_results_come_from_the_section_itself() -> None:
    text = "One\n===\n\nfirst\n\nTwo\n---\n\nsecond, ``code``.\n\n- third\n\n.. hidden\n"
    tree = docutils.core.publish_doctree(text, settings_overrides={"doctitle_xform": False})
    assert conf.texts_of(tree) == {"one": "first", "two": "second, code. third"}


def test_public_name_without_a_page_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "autofunction:: triokafka.read_topic" in python_api.pages()["python-reading-ranges.md"][1]
    monkeypatch.setattr(python_api, "PAGES", {**python_api.PAGES, "Reading ranges": ("RangeReader",)})
    with pytest.raises(LookupError, match=r"triokafka\.read_topic"):
        python_api.pages()


def test_every_public_name_has_a_docstring() -> None:
    names = [name for name in triokafka.__all__ if name != "__version__"]
    assert [name for name in names if not (getattr(triokafka, name).__doc__ or "").strip()] == []


def documented() -> dict[str, str]:
    """The docstrings of what the reference shows: public classes, functions, and what classes have of their own."""
    found: dict[str, str] = {}
    for _, text in python_api.pages().values():
        for name in re.findall(r"auto(?:class|function):: ([\w.]+)", text):
            thing = pkgutil.resolve_name(name)
            found[name] = inspect.getdoc(thing) or ""
            members = vars(thing).items() if isinstance(thing, type) else ()
            shown = [(own, value) for own, value in members if not own.startswith("_") and not isinstance(value, dict)]
            found |= {f"{name}.{own}": inspect.getdoc(value) or "" for own, value in shown}
    return found


def problems_of(text: str) -> list[str]:
    """The warnings of the site's docstring reader, without those about roles and directives that only Sphinx knows."""
    config: Any = napoleon.Config(napoleon_custom_sections=conf.napoleon_custom_sections)
    quiet = {"report_level": 5, "halt_level": 5, "file_insertion_enabled": False}
    tree = docutils.core.publish_doctree(str(GoogleDocstring(text, config)), settings_overrides=quiet)
    messages = [message.astext() for message in tree.findall(docutils.nodes.system_message) if message["level"] > 1]
    return [one for one in messages if "nknown " not in one and "No role entry" not in one]


def test_site_can_render_all_docstrings() -> None:
    """``make docs`` fails at the first one that cannot be rendered."""
    assert problems_of("Odd.\n\nOdd things:\n    one: two\n        three\n    four: five\n") != []
    assert {name: found for name, text in documented().items() if (found := problems_of(text))} == {}
