"""``triokafka storage format``: what it writes, and what it refuses before it writes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from triokafka.broker_stub.storage_format import read_bootstrap_records
from triokafka.cli.app import run
from triokafka.protocol.stored.cluster_metadata import FeatureLevelRecord
from triokafka.world.os_storage import OsStorage

ID = "3Db5QLSqSZieL3rJBUUegA"
STATIC = "controller.quorum.voters=1@127.0.0.1:9093"
DYNAMIC = "controller.quorum.bootstrap.servers=127.0.0.1:9093"
SNAPSHOT = "data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def format_node(directory: Path, quorum: str, *options: str, roles: str = "broker,controller") -> int:
    """Format the data directory of node 1; return the exit status."""
    file = directory / "server.properties"
    controller = ",CONTROLLER://127.0.0.1:9093" if "controller" in roles else ""
    file.write_text(
        f"process.roles={roles}\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092{controller}\n{quorum}\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={directory}/data\n"
    )
    return run(["storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(file), *options])


def levels(directory: Path) -> dict[str, int]:
    """Return the first levels of features, in their order in the file."""
    records = read_bootstrap_records(OsStorage(), str(directory / "data"))
    return {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}


@pytest.mark.parametrize(
    ("quorum", "options", "complaint"),
    [
        (STATIC, ["--release-version", "3.2"], "metadata.version 3 is not supported, only 7 to 30"),
        (STATIC, ["--release-version", "4.4"], "metadata.version 31 is not supported, only 7 to 30"),
        (STATIC, ["--feature", "kraft.version=1"], "with controller.quorum.voters it is 0"),
        (DYNAMIC, ["--standalone", "--feature", "kraft.version=0"], "--no-initial-controllers it is 1"),
        (
            STATIC,
            ["--release-version", "3.9", "--feature", "eligible.leader.replicas.version=1"],
            "needs metadata.version 23 or higher, not 21",
        ),
        (DYNAMIC, ["--initial-controllers", f"1@h:9093:{ID},1@h:9094:{ID}"], "names the node 1 twice"),
        (DYNAMIC, ["--initial-controllers", f"1@h:70000:{ID}"], "a port from 1 to 65535"),
        (DYNAMIC, ["--initial-controllers", f"1@:9093:{ID}"], "needs a host"),
    ],
)
def test_wrong_argument_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quorum: str, options: list[str], complaint: str
) -> None:
    assert format_node(tmp_path, quorum, *options) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "data").exists()


def test_level_of_the_metadata_brings_the_features_of_its_release(tmp_path: Path) -> None:
    assert format_node(tmp_path, STATIC, "--feature", "metadata.version=20") == 0
    assert levels(tmp_path) == {"metadata.version": 20}


def test_level_of_the_quorum_has_no_record(tmp_path: Path) -> None:
    """A record of kraft.version would be a feature that the metadata cannot have."""
    assert format_node(tmp_path, DYNAMIC, "--standalone", "--feature", "kraft.version=1") == 0
    assert list(levels(tmp_path)) == [
        "metadata.version",
        "eligible.leader.replicas.version",
        "group.version",
        "transaction.version",
    ]


def test_nodes_that_are_not_voters_get_the_voters(tmp_path: Path) -> None:
    assert format_node(tmp_path, DYNAMIC, "--initial-controllers", f"2@h:9093:{ID}") == 0
    assert (tmp_path / SNAPSHOT).exists()


def test_broker_gets_the_voters(tmp_path: Path) -> None:
    assert format_node(tmp_path, DYNAMIC, "--initial-controllers", f"2@h:9093:{ID}", roles="broker") == 0
    assert (tmp_path / SNAPSHOT).exists()


def test_static_voters_need_no_others(tmp_path: Path) -> None:
    assert format_node(tmp_path, STATIC, "--no-initial-controllers") == 0
    assert not (tmp_path / SNAPSHOT).exists()
