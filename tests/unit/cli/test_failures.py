"""The error messages of failed commands."""

from __future__ import annotations

import errno
import io
import os

import pytest

import triokafka
from triokafka.cli.failures import status_of
from triokafka.errors import SecurityProtocolMismatchError
from triokafka.testing import running_broker

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


async def test_listener_with_another_protocol_is_reported_with_one_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    async with running_broker(tls=True) as broker:
        with pytest.raises(SecurityProtocolMismatchError) as refused:
            async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
                await admin.list_topics()
    assert status_of(refused.value) == 1
    assert capsys.readouterr().err == (
        f"triokafka: bootstrap server {broker.bootstrap_servers} expects TLS. Set security_protocol to SSL or SASL_SSL,"
        " or use another port\n"
    )
