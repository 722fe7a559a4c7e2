"""``triokafka storage`` and ``triokafka quorum`` with nodes in their own processes: a dynamic quorum grows."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from triokafka.cli.cluster.free_ports import free_ports

_TRIOKAFKA = (sys.executable, "-m", "triokafka")
_START_SECONDS = 60


def triokafka(*words: str, status: int = 0) -> str:
    """Run a command and return its output."""
    done = subprocess.run([*_TRIOKAFKA, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Return the ``server.properties`` of two nodes of a dynamic quorum."""
    ports = free_ports(4)
    found = []
    for number in (1, 2):
        path = tmp_path / f"node{number}.properties"
        path.write_text(
            "process.roles=broker,controller\n"
            f"node.id={number}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{ports[number - 1]},CONTROLLER://127.0.0.1:{ports[number + 1]}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:{ports[2]}\n"
            f"log.dirs={tmp_path}/data{number}\n"
        )
        found.append(path)
    return found


@pytest.fixture
def nodes(files: list[Path]) -> Iterator[list[str]]:
    """Run both nodes; yield the addresses of their brokers."""
    cluster_id = triokafka("storage", "random-uuid").strip()
    triokafka("storage", "format", "-t", cluster_id, "-c", str(files[0]), "--standalone")
    triokafka("storage", "format", "-t", cluster_id, "-c", str(files[1]), "--no-initial-controllers")
    running = [
        subprocess.Popen([*_TRIOKAFKA, "broker", "--config", str(path)], stdout=subprocess.PIPE, text=True)
        for path in files
    ]
    try:
        addresses = []
        for process in running:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready "), line
            addresses.append(line.split()[1])
        yield addresses
        for process in running:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(_START_SECONDS) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
            process.wait()


def described(at: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Return the ids of voters and observers. All voters have directories and endpoints."""
    found = dict(re.findall(r"^(\w+): +(.*)$", triokafka("quorum", "describe", *at), re.MULTILINE))
    voters, observers = (json.loads(found[name]) for name in ("CurrentVoters", "CurrentObservers"))
    assert all(len(one["directoryId"]) == 22 and one["endpoints"][0].startswith("CONTROLLER://") for one in voters)
    return [one["id"] for one in voters], [one["id"] for one in observers]


def test_controller_joins_and_leaves_a_dynamic_quorum(nodes: list[str], files: list[Path]) -> None:
    at = ("-b", nodes[1])
    assert described(at) == ([1], [2])
    assert triokafka("quorum", "add-controller", "--config", str(files[1]), *at).startswith("Added controller 2")
    assert described(at) == ([1, 2], [])
    shown = triokafka("quorum", "describe", "--replication", "--human-readable", *at)
    assert re.search(r"^1 .*\d ms ago +\t\d+ ms ago +\tLeader\n2 .*Follower", shown, re.MULTILINE), shown
    own = re.search(r"^2 +\t(\S+)", shown, re.MULTILINE)
    assert own, shown
    triokafka("quorum", "remove-controller", "--controller-id", "2", f"--controller-directory-id={own[1]}", *at)
    assert described(at)[0] == [1]


def test_formatted_directory_is_not_formatted_again(files: list[Path], tmp_path: Path) -> None:
    first = ("storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(files[0]), "--standalone")
    assert "Formatting data directory" in triokafka(*first)
    assert "is formatted already" in triokafka(*first, status=1)
    assert "already formatted" in triokafka(*first, "--ignore-formatted")
    other = [word.replace("MkU3OEVBNTcwNTJENDM2Qk", "AkU3OEVBNTcwNTJENDM2Qk") for word in first]
    assert "belongs to the cluster MkU3OEVBNTcwNTJENDM2Qk" in triokafka(*other, "--ignore-formatted", status=2)
    shown = triokafka("storage", "info", "-c", str(files[0]))
    assert "cluster.id=MkU3OEVBNTcwNTJENDM2Qk" in shown
    assert "node.id=1" in shown
    assert "is not formatted" in triokafka("storage", "info", "-c", str(files[1]), status=1)


def test_added_directory_is_formatted_with_the_others(files: list[Path], tmp_path: Path) -> None:
    words = ("storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(files[0]), "--standalone")
    triokafka(*words)
    old = re.search(r"log.dirs=(.*)", files[0].read_text())
    assert old
    added = tmp_path / "added"
    files[0].write_text(files[0].read_text().replace(old[0], f"{old[0]},{added}") + f"metadata.log.dir={old[1]}\n")
    assert triokafka(*words, "--ignore-formatted").count("Formatting") == 1
    shown = triokafka("storage", "info", "-c", str(files[0]))
    assert shown.count("cluster.id=MkU3OEVBNTcwNTJENDM2Qk") == 2 and f"{added}:" in shown


def test_formatting_a_dynamic_quorum_requires_a_choice_of_voters(files: list[Path]) -> None:
    words = ("storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(files[0]))
    assert "give --standalone, --initial-controllers or" in triokafka(*words, status=2)
    assert "exclude each other" in triokafka(*words, "--standalone", "--no-initial-controllers", status=2)
