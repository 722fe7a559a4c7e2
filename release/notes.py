"""Cuts the notes of a release out of the changelog."""

from __future__ import annotations

import re
from typing import Final

_SECTION: Final = re.compile(r"^## +\[?([^\]\s]+)\]?.*$", re.MULTILINE)


def notes_of(changelog: str, version: str) -> str:
    """Return the section of a version, or ``Unreleased`` if that describes the packages.

    ``Unreleased`` describes them if the version has no section yet, or if it is the newest one and there are changes
    since.

    Args:
        changelog: the text of ``CHANGELOG.md``.
        version: such as ``0.1.0``.

    Raises:
        ValueError: there is neither section, or it is empty.
    """
    parts = _SECTION.split(changelog)
    sections = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    unreleased = sections.pop("Unreleased", "")
    if unreleased and version == next(iter(sections), None):
        return f"# Changes since triokafka {version}\n\n{unreleased}\n"
    text = sections.get(version, unreleased)
    if not text:
        raise ValueError(f"CHANGELOG.md has no text under {version} or Unreleased")
    return f"# triokafka {version}\n\n{text}\n"
