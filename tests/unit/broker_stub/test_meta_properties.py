from __future__ import annotations

import errno
import random
import uuid

import pytest

from tests.unit.broker_stub.clusters import numbered_ids
from triokafka.broker_stub.config import parse_properties
from triokafka.broker_stub.meta_properties import (
    ClusterIdentity,
    open_directories,
)
from triokafka.errors import ConfigurationError
from triokafka.structs import format_uuid
from triokafka.world.memory import DiskFault, MemoryStorage


def opened(disk: MemoryStorage, *paths: str, node_id: int = 1, cluster_id: str | None = None) -> ClusterIdentity:
    return open_directories(disk, paths, node_id, new_id=numbered_ids(), cluster_id=cluster_id)


def written(disk: MemoryStorage, text: str) -> None:
    disk.make_dirs("/d")
    disk.replace_file("/d/meta.properties", text.encode())


def test_new_directory_gets_kafkas_file() -> None:
    disk = MemoryStorage()
    identity = opened(disk, "/d")
    assert parse_properties(disk.read_file("/d/meta.properties").decode()) == {
        "version": "1",
        "cluster.id": identity.cluster_id,
        "node.id": "1",
        "directory.id": format_uuid(identity.directory_ids["/d"]),
    }
    assert len(identity.cluster_id) == 22


def test_ids_stay_and_a_new_directory_joins_the_cluster() -> None:
    disk = MemoryStorage()
    first = opened(disk, "/d")
    second = open_directories(disk, ["/d", "/e"], 1, new_id=lambda: uuid.UUID(int=77))
    assert second.cluster_id == first.cluster_id
    assert second.directory_ids == {**first.directory_ids, "/e": uuid.UUID(int=77)}


def test_file_survives_the_power_cut() -> None:
    disk = MemoryStorage()
    first = opened(disk, "/a/b/d")
    disk.crash(random.Random(1))
    assert opened(disk, "/a/b/d") == first


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version=0\nbroker.id=1\n", "version 0"),
        ("version=1\nnode.id=1\n", "no cluster.id"),
        ("version=1\ncluster.id=a\nnode.id=2\n", "belongs to node 2"),
        ("version=1\ncluster.id=a\nnode.ie=1\n", "meta.properties has no node.id"),
        ("version=1\ncluster.id=a\nnode.id=1\ndirectory.id=!\n", "directory.id"),
        ("", "version None"),
    ],
)
def test_directory_that_does_not_fit_is_refused_with_the_reason(text: str, words: str) -> None:
    disk = MemoryStorage()
    written(disk, text)
    with pytest.raises(ConfigurationError, match=words) as refused:
        opened(disk, "/d")
    assert "/d" in str(refused.value)


def test_directories_of_two_clusters_are_refused() -> None:
    disk = MemoryStorage()
    opened(disk, "/d", cluster_id="a")
    with pytest.raises(ConfigurationError, match="belongs to the cluster a, not to b"):
        opened(disk, "/d", cluster_id="b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version=1\ncluster.id=a\nnode.id=1\n", "belongs to the cluster a, not to b"),
        ("version=1\ncluster.id=b\nnode.id=2\n", "belongs to node 2"),
        ("version=2\ncluster.id=b\nnode.id=1\n", "version 2"),
    ],
)
@pytest.mark.parametrize("order", [("/d", "/e"), ("/e", "/d")])
def test_refusal_leaves_a_missing_directory_missing(text: str, words: str, order: tuple[str, str]) -> None:
    disk = MemoryStorage()
    written(disk, text)
    with pytest.raises(ConfigurationError, match=words):
        opened(disk, *order, cluster_id="b")
    assert not disk.is_dir("/e")


def test_directories_with_one_id_are_refused_before_a_missing_one_is_created() -> None:
    disk = MemoryStorage()
    opened(disk, "/d")
    disk.make_dirs("/e")
    disk.replace_file("/e/meta.properties", disk.read_file("/d/meta.properties"))
    with pytest.raises(ConfigurationError, match=r"the same directory\.id"):
        opened(disk, "/d", "/e", "/f")
    assert not disk.is_dir("/f")


def test_directory_that_cannot_be_written_is_refused_with_the_reason() -> None:
    disk = MemoryStorage()
    disk.inject(DiskFault("write", code=errno.EROFS))
    with pytest.raises(ConfigurationError, match="/d cannot be written"):
        opened(disk, "/d")


@pytest.mark.parametrize("operation", ["make_dirs", "write", "read"])
def test_of_several_directories_one_that_cannot_be_used_is_left_out(operation: str) -> None:
    """Only that directory fails, unless it contains the metadata log."""
    disk = MemoryStorage()
    if operation == "read":
        opened(disk, "/d", "/e")
    disk.inject(DiskFault(operation, "/e*", errno.EIO))
    identity = opened(disk, "/d", "/e")
    assert list(identity.directory_ids) == ["/d"]
    assert [(path, error.errno) for path, error in identity.failed.items()] == [("/e", errno.EIO)]
    for needed in (["/e"], ["/e", "/d"]):
        with pytest.raises(ConfigurationError, match="/e cannot be"):
            opened(disk, *needed)


@pytest.mark.parametrize("folder", ["__cluster_metadata-0", "orders-0", ".hidden-topic-3"])
def test_missing_file_beside_logs_is_refused_by_name(folder: str) -> None:
    """A new file would take the logs into another cluster."""
    disk = MemoryStorage()
    opened(disk, "/d", "/e")
    disk.make_dirs(f"/e/{folder}")
    disk.remove("/e/meta.properties")
    with pytest.raises(ConfigurationError, match=r"/e/meta\.properties is missing.*" + folder):
        opened(disk, "/d", "/e")
    assert not disk.exists("/e/meta.properties")


def test_garbage_is_refused_with_the_name_of_the_file() -> None:
    disk = MemoryStorage()
    disk.make_dirs("/d")
    disk.replace_file("/d/meta.properties", b"\xff\xfe\x00version=1")
    with pytest.raises(ConfigurationError, match=r"/d/meta\.properties is damaged"):
        opened(disk, "/d")
