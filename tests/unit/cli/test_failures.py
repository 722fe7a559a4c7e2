"""The error messages of failed commands."""

from __future__ import annotations

import errno
import io
import os

import pytest

from triokafka.cli.failures import status_of

FULL = "triokafka: standard output: No space left on device. The output is incomplete."


@pytest.mark.parametrize("grouped", [False, True])
def test_full_disk_of_the_output_is_named(
    grouped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands with tasks, such as ``consume``, fail with a group."""
    monkeypatch.setattr("sys.stdout", io.StringIO())
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert status_of(ExceptionGroup("tasks", [error]) if grouped else error) == 1
    assert capsys.readouterr().err.splitlines() == [FULL]
