"""When progress bars are drawn."""

from __future__ import annotations

import io
import os
import sys

import pytest

from triokafka.cli.progress import progress, say, shows_progress, size_of_input


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def stderr_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called by the test itself: pytest replaces the stream after the fixtures."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_bar_is_drawn_on_a_terminal_and_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr_is_a_terminal(monkeypatch)
    assert shows_progress()
    with progress("sending", 10, shown=shows_progress()) as advance:
        advance(4)
        advance(6)
    drawn = terminal.getvalue()
    assert "sending" in drawn and "10/10" in drawn
    assert drawn.endswith("\x1b[2K")  # the line is empty again


def test_bar_of_bytes_has_units(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr_is_a_terminal(monkeypatch)
    with progress("sending", 3 * 1024 * 1024, shown=True, unit="bytes") as advance:
        advance(3 * 1024 * 1024)
    assert "3.0/3.0 MiB" in terminal.getvalue()


def test_nothing_is_drawn_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    assert not shows_progress()
    with progress("sending", 10, shown=shows_progress()) as advance:
        advance(10)
    assert pipe.getvalue() == ""


def test_terminal_that_cannot_draw_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr_is_a_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    assert not shows_progress()


def test_results_in_the_same_terminal_leave_no_room_for_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr_is_a_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert shows_progress(beside_output=True)
    monkeypatch.setattr(sys, "stdout", terminal)
    assert not shows_progress(beside_output=True)


def test_only_a_file_has_a_size_from_where_it_is_read(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.path.join(tmp_path, "lines.txt")
    with open(path, "w") as file:
        file.write("0123456789")
    with open(path) as file:
        os.lseek(file.fileno(), 4, os.SEEK_SET)
        monkeypatch.setattr(sys, "stdin", file)
        assert size_of_input() == 6
    read, write = os.pipe()
    with os.fdopen(read) as pipe, os.fdopen(write, "w"):
        monkeypatch.setattr(sys, "stdin", pipe)
        assert size_of_input() is None
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert size_of_input() is None


def test_report_is_a_line_of_its_own_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr_is_a_terminal(monkeypatch)
    with progress("sending", 10, shown=True) as advance:
        advance(4)
        say("4 of 10 records [acknowledged]")
    assert "\r\x1b[2K4 of 10 records [acknowledged]\n" in terminal.getvalue()
    say("the end")
    assert terminal.getvalue().endswith("the end\n")
