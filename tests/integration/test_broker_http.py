"""The HTTP addresses of ``triokafka broker``: ``--control`` with its token, and ``--metrics``."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support.broker_process import free_port

TOKEN = "a-token-of-the-environment"


@contextmanager
def broker(*options: str, environment: Mapping[str, str] | None = None, listen: bool = True) -> Iterator[Iterator[str]]:
    """Run a broker; yield its output lines, starting with "ready"."""
    where = ["--listen", "127.0.0.1:0"] if listen else []
    command = [sys.executable, "-m", "triokafka", "broker", "--in-memory", *where, *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    try:
        assert process.stdout is not None
        yield process.stdout
    finally:
        process.terminate()
        process.communicate(timeout=30)


def status(address: str, path: str, *, token: str | None = None, method: str = "GET") -> int:
    port = address.rpartition(":")[2]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", None, headers, method=method), timeout=30) as answer:
            found: int = answer.status
            return found
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("more", [(), ("--nodes", "1"), ("--control", "127.0.0.1:0")])
def test_metrics_are_served_on_an_address_of_their_own(more: tuple[str, ...]) -> None:
    with broker("--metrics", "127.0.0.1:0", *more) as lines:
        printed = [next(lines).split() for _ in range(3 if "--control" in more else 2)]
        assert [line[0] for line in printed] == ["ready", *(["control"] if "--control" in more else []), "metrics"]
        address = printed[-1][1]
        with urlopen(f"http://{address}/metrics", timeout=30) as answer:
            assert b"kafka_server_" in answer.read()
        assert [status(address, path) for path in ("/faults", "/stop", "/")] == [404] * 3
        assert status(address, "/metrics", method="POST") == 405


def test_node_that_is_only_a_controller_serves_metrics() -> None:
    address = f"127.0.0.1:{free_port()}"
    settings = (
        "node.id=1",
        "process.roles=controller",
        "controller.listener.names=CONTROLLER",
        f"controller.quorum.voters=1@{address}",
        f"listeners=CONTROLLER://{address}",
    )
    with broker("--metrics", "127.0.0.1:0", *(f"--set={one}" for one in settings), listen=False) as lines:
        address = [next(lines).split() for _ in range(2)][1][1]
        text, deadline = "", time.monotonic() + 60
        while "kafka_controller_kafkacontroller_activecontrollercount 1" not in text:
            assert time.monotonic() < deadline, text
            with urlopen(f"http://{address}/metrics", timeout=30) as answer:
                text = answer.read().decode()
    assert "kafka_server_raft_metrics_current_leader 1" in text
    assert 'kafka_server_socket_server_metrics_connection_count{listener="CONTROLLER"}' in text


def test_control_on_all_interfaces_prints_a_token_and_requires_it() -> None:
    with broker("--control", "0.0.0.0:0") as lines:
        ready, control, token = (next(lines).split() for _ in range(3))
        assert (ready[0], control[0], token[0]) == ("ready", "control", "token")
        assert status(control[1], "/faults") == 401
        assert status(control[1], "/faults", token=token[1]) == 200


def test_token_of_the_environment_is_not_printed() -> None:
    with broker(
        "--control", "0.0.0.0:0", "--metrics", "127.0.0.1:0", environment={"TRIOKAFKA_CONTROL_TOKEN": TOKEN}
    ) as lines:
        _, control, metrics = (next(lines).split() for _ in range(3))
        assert metrics[0] == "metrics"
        assert (status(control[1], "/faults"), status(control[1], "/faults", token=TOKEN)) == (401, 200)


def test_token_file_is_created_for_its_owner_alone_and_used_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for _ in range(2):
        with broker("--control", "127.0.0.1:0", "--control-token-file", str(path)) as lines:
            _, control = (next(lines).split() for _ in range(2))
            token = path.read_text().strip()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert (status(control[1], "/faults"), status(control[1], "/faults", token=token)) == (401, 200)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"short", "at least 16"),
        (b"", "at least 16"),
        (b"\xff" * 20, "not a token"),
        (b"two words in a token", "no spaces"),
    ],
)
def test_invalid_token_file_is_named(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    command = [sys.executable, "-m", "triokafka", "broker", "--in-memory", "--listen", "127.0.0.1:0"]
    command += ["--control", "127.0.0.1:0", "--control-token-file", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert str(path) in done.stderr and sentence in done.stderr
