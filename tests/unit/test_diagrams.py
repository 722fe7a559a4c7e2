"""The diagrams of the documentation are what their generator draws, name what exists, and are shown with a text."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.diagrams.__main__ import IMAGES
from docs.diagrams.catalogue import DIAGRAMS
from docs.diagrams.svg import SMALL, TEXT, width_of
from tests.unit.test_docs import ROOT, class_members, functions_of_files

_SVG = "{http://www.w3.org/2000/svg}"
_SHOWN = re.compile(r"!\[([^\]]*)\]\([\w./]*images/([\w-]+)\.svg\)")


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_in_the_repository_is_the_one_that_the_generator_draws(name: str) -> None:
    drawn = DIAGRAMS[name]().render()
    assert (IMAGES / f"{name}.svg").read_text(encoding="utf-8") == drawn, "run `python -m docs.diagrams`"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_has_title_and_description_and_all_its_text_inside(name: str) -> None:
    root = ElementTree.parse(IMAGES / f"{name}.svg").getroot()
    assert root.findtext(f"{_SVG}title") and root.findtext(f"{_SVG}desc")
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for text in root.iter(f"{_SVG}text"):
        small = "s" in text.get("class", "").split()
        wide = width_of(text.text or "", size=SMALL if small else TEXT)
        wide += sum(
            width_of(part.text or "", size=SMALL, mono=True) + width_of(part.tail or "", size=TEXT) for part in text
        )
        x = float(text.get("x", "0"))
        left = {"end": x - wide, "middle": x - wide / 2}.get(text.get("text-anchor", ""), x)
        assert left >= 0 and left + wide <= width, f"{''.join(text.itertext())!r} is cut"
        assert 0 < float(text.get("y", "0")) <= height


@pytest.mark.parametrize("name", DIAGRAMS)
def test_no_background_hides_the_underscores_of_the_text_above_it(name: str) -> None:
    base = 0.0
    for part in ElementTree.parse(IMAGES / f"{name}.svg").getroot():
        if part.tag == f"{_SVG}text":
            base = float(part.get("y", "0"))
        elif part.get("class") == "bg":
            middle = float(re.split(r"[ h]", part.get("d", ""))[1])
            assert middle - 8 >= base + 3


def test_names_in_the_diagrams_exist() -> None:
    functions = set().union(*functions_of_files().values())
    found = 0
    for name in DIAGRAMS:
        root = ElementTree.parse(IMAGES / f"{name}.svg").getroot()
        for text in root.iter(f"{_SVG}tspan"):
            owner, _, method = (text.text or "").rpartition(".")
            known = method in class_members().get(owner, ()) if owner else method in functions | set(class_members())
            assert known or any(method in members for members in class_members().values() if not owner), text.text
            found += 1
    assert found > 30


def test_every_diagram_is_shown_on_a_page_with_an_alternative_text() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    shown = {name: alternative for page in pages for alternative, name in _SHOWN.findall(page)}
    assert set(shown) == set(DIAGRAMS)
    assert all(len(alternative) > 30 for alternative in shown.values())
    assert {path.stem for path in Path(IMAGES).glob("*.svg")} == set(DIAGRAMS)
