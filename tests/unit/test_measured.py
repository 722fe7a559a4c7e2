"""Measured figures in the pages are those of the files in ``docs/numbers``, and no page measures without a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs import measured

PAGES = [path for path in measured.pages() if re.search("<!-- (?:number|measured): ", path.read_text(encoding="utf-8"))]
FILES = sorted(measured.NUMBERS.glob("*.json"))


@pytest.fixture
def one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "command": "python -m benchmarks --save-numbers t",
        "date": "2026-01-02",
        "python": "3.11.7",
        "machine": {"cpu": "a CPU", "cores": 2, "memory_gib": 7.7, "system": "Linux 6.1"},
        "figures": {"ratio": {"value": 2.41, "text": "2.4", "what": "ours over theirs"}},
    }
    (tmp_path / "t.json").write_text(json.dumps(document))
    monkeypatch.setattr(measured, "NUMBERS", tmp_path)
    measured.document.cache_clear()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(measured.ROOT)))
def test_figures_of_a_page_are_those_of_the_files(page: Path) -> None:
    measured.document.cache_clear()
    assert measured.problems(page.read_text(encoding="utf-8")) == [], "run `python -m docs.measured`"


@pytest.mark.parametrize("page", measured.pages(), ids=lambda page: str(page.relative_to(measured.ROOT)))
def test_a_page_has_no_measured_comparison_without_a_file(page: Path) -> None:
    assert measured.unmarked_claims(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_when_where_and_how_it_was_measured(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert {"command", "date", "rounds", "machine", "python", "versions", "figures", "rows"} <= found.keys()
    assert {"cpu", "cores", "memory_gib", "system"} <= found["machine"].keys()
    assert found["command"].endswith(f"--save-numbers {path.stem}")
    assert all(one["text"] and one["what"] for one in found["figures"].values())


def test_the_page_of_all_figures_is_made_from_the_files() -> None:
    measured.document.cache_clear()
    assert measured.PAGE.read_text(encoding="utf-8") == measured.page(), "run `python -m docs.measured`"


@pytest.mark.usefixtures("one_file")
def test_another_figure_in_the_text_is_found_and_replaced() -> None:
    stale = "`send` is 2.5 times<!-- number: t.ratio --> as fast."
    assert measured.problems(stale) == ["t.ratio is 2.4, not 2.5"]
    assert measured.updated(stale) == "`send` is 2.4 times<!-- number: t.ratio --> as fast."
    assert measured.problems(measured.updated(stale)) == []


@pytest.mark.usefixtures("one_file")
def test_unknown_figures_and_marks_without_a_figure_are_found() -> None:
    assert measured.problems("2<!-- number: t.other -->") == ["docs/numbers/t.json has no figure 'other', but ratio"]
    assert measured.problems("fast<!-- number: t.ratio -->") == ["a mark has no figure within 20 characters before it"]


@pytest.mark.usefixtures("one_file")
def test_the_machine_is_written_from_the_file() -> None:
    text = measured.updated("<!-- measured: t -->old<!-- /measured -->")
    assert "2026-01-02: 2 cores of a CPU, 8 GiB, Linux 6.1, Python 3.11.7" in text
    assert measured.problems(text) == []
    assert measured.problems(text.replace("2026", "2025")) != []


@pytest.mark.parametrize(
    "claim",
    ["3 times as fast", "several times faster", "about 18 times less", "2.4× the rate", "1,000,000 records a second"],
)
def test_a_measured_comparison_without_a_mark_is_found(claim: str) -> None:
    assert measured.unmarked_claims(f"It is {claim}.") != []
    assert measured.unmarked_claims(f"It is {claim}<!-- number: t.ratio -->.") == []
    assert measured.unmarked_claims(f"```\n{claim}\n```") == []
