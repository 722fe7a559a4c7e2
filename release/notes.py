"""Cuts the notes of a release out of the changelog."""

from __future__ import annotations

import re
from typing import Final

_SECTION: Final = re.compile(r"^## +\[?([^\]\s]+)\]?.*$", re.MULTILINE)


def notes_of(changelog: str, version: str) -> str:
    """Return the section of a version; the section ``Unreleased`` if the version has none yet.

    Args:
        changelog: the text of ``CHANGELOG.md``.
        version: such as ``0.1.0``.

    Raises:
        ValueError: there is neither section, or it is empty.
    """
    parts = _SECTION.split(changelog)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    text = sections.get(version, sections.get("Unreleased", "")).strip()
    if not text:
        raise ValueError(f"CHANGELOG.md has no text under {version} or Unreleased")
    return f"# triokafka {version}\n\n{text}\n"
