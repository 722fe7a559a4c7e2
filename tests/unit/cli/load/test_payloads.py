"""Payloads of a load test: generated or from a file, and their sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.clients.job import Job, bytes_of  # type: ignore[attr-defined]
from triokafka.cli.load.payloads import file_values, json_values


def test_values_have_the_size_and_differ() -> None:
    values = json_values(100)
    assert len(values) == 1000
    assert {len(value) for value in values} == {100}
    assert len(set(values)) == 1000


def test_large_values_are_fewer() -> None:
    assert len(json_values(2 << 20)) == 2
    assert len(json_values(8 << 20)) == 1


def test_lines_of_a_file_are_values(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"one\r\n\ntwo\n")
    assert file_values(str(file)) == [b"one", b"two"]
    assert Job("", "", 0, 0, "none", payload_file=str(file)).values() == [b"one", b"two"]


def test_values_of_a_file_may_have_a_delimiter_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"one\nmore||two||\n")
    assert file_values(str(file), b"||") == [b"one\nmore", b"two"]


def test_a_file_without_lines_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\n\n")
    with pytest.raises(ValueError, match="only empty lines"):
        file_values(str(file))


def test_bytes_of_records_that_take_values_in_turns() -> None:
    assert bytes_of([b"a", b"bb", b"ccc"], 7) == 6 + 6 + 1
