"""``kafka-storage format`` and ``triokafka storage format``: the same refusals, and the same files in the directories.

Three differences are intended. Without a release, Kafka's tool chooses the newest levels, and ours those that every
Kafka 4 can read. Ours writes ``bootstrap.checkpoint`` into the directory of the metadata log only. And ours refuses a
directory that has logs but no ``meta.properties``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop import jvm
from tests.interop.tool_session import ToolSession, tool_session
from triokafka.broker_stub.metadata.records import decode_batches
from triokafka.broker_stub.storage_format import BOOTSTRAP_FILE
from triokafka.cli.app import run
from triokafka.protocol.stored.cluster_metadata import UserScramCredentialRecord
from triokafka.records import decode_records, iter_batches
from triokafka.structs import parse_uuid

pytestmark = pytest.mark.interop

CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qk"
FORMAT_SNAPSHOT: Final = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
_BOTH: Final = "process.roles=broker,controller\nlisteners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
_VOTERS: Final = "controller.quorum.voters=1@127.0.0.1:9093\n"
_BOOTSTRAP: Final = "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
NODES: Final = {
    "static": _BOTH + _VOTERS,
    "dynamic": _BOTH + _BOOTSTRAP,
    "controller": "process.roles=controller\nlisteners=CONTROLLER://127.0.0.1:9093\n" + _BOOTSTRAP,
    "broker": "process.roles=broker\nlisteners=PLAINTEXT://127.0.0.1:9092\n" + _BOOTSTRAP,
}
ID, ID_2 = "3Db5QLSqSZieL3rJBUUegA", "MvDxzVmcRsaTz33bUuRU6A"
SCRAM: Final = "SCRAM-SHA-256="
ROWS: Final = [
    # Voters.
    ("static", ""),
    ("static", "--standalone"),
    ("static", "--no-initial-controllers"),
    ("static", f"--initial-controllers 1@127.0.0.1:9093:{ID}"),
    ("dynamic", ""),
    ("dynamic", "--standalone"),
    ("dynamic", "--no-initial-controllers"),
    ("dynamic", "--standalone --no-initial-controllers"),
    ("dynamic", f"--initial-controllers 1@127.0.0.1:9093:{ID}"),
    ("dynamic", f"--initial-controllers 1@127.0.0.1:9093:{ID},2@127.0.0.1:9094:{ID_2}"),
    ("dynamic", f"--initial-controllers 2@127.0.0.1:9094:{ID_2}"),
    ("dynamic", f"--initial-controllers 1@127.0.0.1:9093:{ID},1@127.0.0.1:9094:{ID_2}"),
    ("dynamic", f"--initial-controllers 1@127.0.0.1:70000:{ID}"),
    ("dynamic", "--initial-controllers 1@127.0.0.1:9093"),
    ("controller", ""),
    ("controller", "--standalone"),
    ("broker", ""),
    ("broker", "--standalone"),
    ("broker", f"--initial-controllers 1@127.0.0.1:9093:{ID}"),
    # Levels of features; a row without a release gets one.
    ("static", "--release-version 3.2"),
    ("static", "--release-version 3.9"),
    ("static", "--release-version 4.0"),
    ("static", "--release-version 4.3"),
    ("static", "--release-version 4.4"),
    ("static", "--release-version 4.0 --feature metadata.version=25"),
    ("static", "--feature metadata.version=20"),
    ("static", "--feature metadata.version=6"),
    ("static", "--feature group.version=0"),
    ("static", "--feature transaction.version=3"),
    ("static", "--feature kraft.version=0"),
    ("static", "--feature kraft.version=1"),
    ("dynamic", "--standalone --feature kraft.version=0"),
    ("dynamic", "--standalone --feature kraft.version=1"),
    ("static", "--feature eligible.leader.replicas.version=1 --release-version 4.0"),
    ("static", "--feature eligible.leader.replicas.version=1 --release-version 3.9"),
    ("static", "--feature share.version=0 --release-version 4.2"),
    ("static", "--feature nope=1"),
    # Users.
    ("static", f"--add-scram {SCRAM}[name=alice,password=secret] --add-scram {SCRAM}[name=bob,password=secret]"),
    ("static", f"--add-scram {SCRAM}[name=alice,password=secret] --release-version 3.4"),
    ("static", f"--add-scram {SCRAM}[name=alice]"),
    ("static", f"--add-scram {SCRAM}[name=alice,iterations=100,password=secret]"),
]


@pytest.fixture(scope="module")
def kafkas() -> Iterator[ToolSession]:
    jvm.require("mvn", "java")
    with tool_session() as session:
        yield session


def properties(directory: Path, node: str, logs: int) -> str:
    """Write the properties of a node; return the path."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    file = directory / "server.properties"
    folders = ",".join(f"{directory}/logs-{number}" for number in range(logs))
    file.write_text(
        f"{NODES[node]}node.id=1\ncontroller.listener.names=CONTROLLER\nlog.dirs={folders}\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
    )
    return str(file)


def contents(directory: Path) -> dict[str, Any]:
    """Return the ids, first records and voters in the directories, without salts and ids that each tool chooses."""
    found: dict[str, Any] = {}
    for path in sorted(directory.glob("logs-*/**/*")):
        name = str(path.relative_to(directory))
        if path.name == "meta.properties":
            lines = (line for line in path.read_text().splitlines() if not line.startswith("#"))
            pairs = dict(line.split("=") for line in lines)
            found[name] = pairs if pairs["directory.id"] in (ID, ID_2) else {**pairs, "directory.id": "chosen"}
        elif path.name == BOOTSTRAP_FILE:
            records = [one for batch in decode_batches(path.read_bytes()) for one in batch.records]
            users = (UserScramCredentialRecord,)
            found[name] = [(one.name, one.iterations) if isinstance(one, users) else one for one in records]
        elif path.is_file():
            data = path.read_bytes()
            batches = (data[one.position : one.position + one.size] for one in iter_batches(data))
            controls = [one for batch in batches for one in decode_records(batch, include_control=True)]
            found[name] = [(one.key, without_id(one.value or b"")) for one in controls[1:]]  # the header has the time
    return found


def without_id(voters: bytes) -> bytes:
    """Return a control record without the directory id of its first voter, unless that id was given to the tool."""
    given = any(parse_uuid(one).bytes in voters for one in (ID, ID_2))
    return voters if given else voters[:7] + voters[23:]


@pytest.mark.parametrize("logs", [1, 2])
def test_both_tools_format_directories_alike(
    kafkas: ToolSession, tmp_path: Path, logs: int, capfd: pytest.CaptureFixture[str]
) -> None:
    different = []
    for node, words in ROWS:
        chosen = words.split()
        if not {"--release-version", "metadata.version=20", "metadata.version=6"} & set(chosen):
            chosen += ["--release-version", "4.1"]
        results = []
        for name in ("theirs", "ours"):
            arguments = ["format", "-t", CLUSTER, "-c", properties(tmp_path / name, node, logs), *chosen]
            failed = kafkas("kafka-storage", *arguments).status if name == "theirs" else run(["storage", *arguments])
            found = contents(tmp_path / name)
            found.pop(f"logs-1/{BOOTSTRAP_FILE}", None)
            results.append((bool(failed), found))
        capfd.readouterr()
        if results[0] != results[1]:
            different.append(f"{node} {words}: {results[0]} and {results[1]}")
    assert not different, "\n".join(different)


def test_both_tools_create_nothing_when_a_directory_belongs_to_another_cluster(
    kafkas: ToolSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("theirs", "ours"):
        file = properties(tmp_path / name, "static", 2)
        known = tmp_path / name / "logs-0"
        known.mkdir()
        (known / "meta.properties").write_text(f"version=1\ncluster.id={ID}\nnode.id=1\ndirectory.id={ID_2}\n")
        arguments = ["format", "-t", CLUSTER, "-c", file, "--ignore-formatted"]
        assert kafkas("kafka-storage", *arguments).status if name == "theirs" else run(["storage", *arguments])
        assert sorted(path.name for path in known.parent.iterdir()) == ["logs-0", "server.properties"], name
    capfd.readouterr()
