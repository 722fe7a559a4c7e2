"""The output of commands where standard output has an encoding that lacks characters."""

from __future__ import annotations

import gc
import io
import sys

import pytest

from triokafka import cli


def test_characters_that_the_encoding_lacks_are_printed_as_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group may have any name, and a terminal any locale."""
    raw = io.BytesIO()

    def print_group() -> int:
        print("g\u00e4ste")
        return 0

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii", write_through=True))
    monkeypatch.setattr(sys, "argv", ["triokafka", "groups", "list"])
    monkeypatch.setattr(cli, "_command_line", lambda arguments: print_group)
    try:
        with pytest.raises(SystemExit) as end:
            cli.main()
    finally:
        gc.unfreeze()
    assert (end.value.code, raw.getvalue()) == (0, b"g\\xe4ste\n")
