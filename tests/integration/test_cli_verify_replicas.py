"""``verify-replicas`` against a cluster of three brokers, one of which has a different record on its disk."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tool import Tool
from triokafka.checksum import crc32c

PATIENCE = 60
CRC_AT, CHECKED_FROM = 17, 21


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "triokafka", "broker", "--nodes", "3", "--data-dir", str(tmp_path)]
    process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    yield process.stdout.readline().decode().removeprefix("ready ").strip()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_first_difference_is_found(
    cluster: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = Tool(cluster, capfdbinary, monkeypatch)
    tool.ok("topics", "create", "same", "--replica-assignment", "1:2:3")
    tool.ok("topics", "create", "keyed", "--replica-assignment", "1:2", "--config", "cleanup.policy=compact")
    for value in ("first", "second", "third"):
        tool.ok("produce", "same", "--value", value)
        tool.ok("produce", "keyed", "--key", "k", "--value", value)
    found = json.loads(tool.ok("verify-replicas", "--topics-include", "same|keyed", "--json"))
    assert [(one["topic"], one["end"], one["compared"], one["problem"]) for one in found] == [
        ("keyed", 3, 3, None),
        ("same", 3, 3, None),
    ]
    change_on_disk(tmp_path, "same-0", b"second", b"SECOND")
    done = tool("verify-replicas", "--topic-partitions", "same:0")
    assert done.status == 1
    lines = done.out.splitlines()
    assert lines[0] == "same-0: replicas 1,2,3, offsets 0 to 3: DIFFERENT at offset 1"
    assert len({line.split()[-1] for line in lines[1:]}) == 2
    assert "no partition matches" in tool.fails("verify-replicas", "--topics-include", "nothing")


def change_on_disk(directory: Path, folder: str, old: bytes, new: bytes) -> None:
    """Replace a value in one replica's file, with a matching checksum."""
    (path, *_) = sorted(directory.rglob(f"{folder}/*.log"))
    deadline = time.monotonic() + PATIENCE
    while old not in (data := bytearray(path.read_bytes())):
        assert time.monotonic() < deadline
    position = 0
    while True:
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if old in data[position : position + size]:
            break
        position += size
    whole = data[position : position + size].replace(old, new)
    whole[CRC_AT:CHECKED_FROM] = crc32c(bytes(whole[CHECKED_FROM:])).to_bytes(4, "big")
    with path.open("r+b") as file:
        file.seek(position)
        file.write(whole)
