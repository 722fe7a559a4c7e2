"""Release notes are the version's section of the changelog."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.notes import notes_of

CHANGELOG = """# Changelog

## Unreleased

### Added

- New.

## [0.2.0] - 2026-01-02

- Second.

## 0.1.0

- First.
"""


@pytest.mark.parametrize(
    ("changelog", "version", "title", "text"),
    [
        (CHANGELOG, "9.9.9", "# triokafka 9.9.9\n", "- New."),
        (CHANGELOG, "0.2.0", "# Changes since triokafka 0.2.0\n", "- New."),
        (CHANGELOG.replace("- New.", "").replace("### Added", ""), "0.2.0", "# triokafka 0.2.0\n", "- Second."),
        (CHANGELOG, "0.1.0", "# triokafka 0.1.0\n", "- First."),
    ],
)
def test_notes_are_the_section_of_the_version_or_unreleased(
    changelog: str, version: str, title: str, text: str
) -> None:
    notes = notes_of(changelog, version)
    assert notes.startswith(title) and text in notes and notes.count("\n- ") == 1


def test_changelog_without_text_for_the_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no text under 1\.0"):
        notes_of("# Changelog\n\n## Unreleased\n\n## 0.9\n\n- Old.\n", "1.0")


def test_changelog_of_this_package_has_notes() -> None:
    changelog = (Path(__file__).parents[3] / "CHANGELOG.md").read_text("utf-8")
    assert len(notes_of(changelog, "0.1.0")) > 100
