"""``meta.properties``: the cluster id, node id and directory id of a data directory."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from triokafka.broker_stub.config import format_properties, parse_properties
from triokafka.broker_stub.log.log_directory import parse_folder
from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import format_uuid, parse_uuid
from triokafka.world import Storage

FILE_NAME: Final = "meta.properties"
_VERSION: Final = "1"


class ClusterIdentity(NamedTuple):
    """Cluster id and node id of the data directories, directory ids by path, and the failures of unusable
    directories.
    """

    cluster_id: str
    node_id: int
    directory_ids: Mapping[str, uuid.UUID]
    failed: Mapping[str, OSError]


def open_directories(
    storage: Storage,
    directories: Sequence[str],
    node_id: int,
    *,
    new_id: Callable[[], uuid.UUID],
    cluster_id: str | None = None,
    needed: str | None = None,
    must_be_formatted: bool = False,
) -> ClusterIdentity:
    """Read the directories' ``meta.properties``; create the directory, the file and the ids of a new data directory.

    Nothing is created unless the ids of all directories fit together.

    A directory with logs is not new: without the file, the cluster of these logs is unknown.

    Args:
        cluster_id: the cluster that a new directory joins; by default the cluster of the other directories, or a new
            one.
        needed: the directory of the metadata log, which must be usable; the first one by default.
        must_be_formatted: the cluster has other nodes, so the needed directory must name the cluster already.

    Raises:
        ConfigurationError: the needed directory cannot be created, read or written; or the file of a directory is
            malformed, missing beside logs, or of another cluster or node. The message names the file or directory.
    """
    needed = directories[0] if needed is None else needed
    found: dict[str, dict[str, str]] = {}
    failed: dict[str, OSError] = {}
    for directory in directories:
        path = os.path.join(directory, FILE_NAME)
        try:
            if storage.exists(path):
                found[directory] = parse_properties(storage.read_file(path).decode("utf-8"), source=path)
            elif storage.is_dir(directory):
                _check_is_new(storage, directory)
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{path} is damaged: {error}. Restore it from a backup, or write it again: version=1, cluster.id, "
                f"node.id and directory.id, one in a line."
            ) from error
        except OSError as error:
            if directory == needed:
                raise ConfigurationError(f"the data directory {directory} cannot be used: {error}") from error
            failed[directory] = error
    if must_be_formatted and needed not in found:
        raise ConfigurationError(
            f"the data directory {needed} is not formatted, so the cluster of this node is unknown: run "
            f"triokafka storage format with the cluster id of the other nodes first"
        )
    for directory, values in found.items():
        _check(directory, values, node_id)
        theirs = values["cluster.id"]
        if cluster_id is not None and theirs != cluster_id:
            raise ConfigurationError(
                f"the data directory {directory} belongs to the cluster {theirs}, not to {cluster_id}"
            )
        cluster_id = theirs
    if cluster_id is None:
        cluster_id = format_uuid(new_id())
    known = {directory: values.get("directory.id") for directory, values in found.items()}
    ids = {
        directory: parse_uuid(text) if (text := known.get(directory)) else new_id()
        for directory in directories
        if directory not in failed
    }
    if len(set(ids.values())) < len(ids):
        raise ConfigurationError(f"two data directories have the same directory.id: {', '.join(directories)}")
    for directory, directory_id in list(ids.items()):
        if known.get(directory):
            continue
        try:
            storage.make_dirs_durably(directory)
            _write(storage, directory, cluster_id, node_id, directory_id)
        except OSError as error:
            if directory == needed:
                raise ConfigurationError(f"the data directory {directory} cannot be written: {error}") from error
            failed[directory] = error
            del ids[directory]
    return ClusterIdentity(cluster_id, node_id, ids, failed)


def _check_is_new(storage: Storage, directory: str) -> None:
    """Raise `ConfigurationError` when a directory without ``meta.properties`` has logs, as Kafka does."""
    for name in storage.list_dir(directory):
        if parse_folder(name) is not None and storage.is_dir(os.path.join(directory, name)):
            raise ConfigurationError(
                f"{os.path.join(directory, FILE_NAME)} is missing, but {directory} has logs, as in {name}: a new file "
                f"would take them into another cluster. Restore the file from a backup, or write it again "
                f"(version=1, cluster.id, node.id and directory.id, one in a line), or move the logs away."
            )


def _check(directory: str, values: Mapping[str, str], node_id: int) -> None:
    where = os.path.join(directory, FILE_NAME)
    if values.get("version") != _VERSION:
        raise ConfigurationError(f"{where} has version {values.get('version')}; only version {_VERSION} can be read")
    if "cluster.id" not in values:
        raise ConfigurationError(f"{where} has no cluster.id")
    if "node.id" not in values:
        raise ConfigurationError(f"{where} has no node.id")
    if values["node.id"] != str(node_id):
        raise ConfigurationError(
            f"the data directory {directory} belongs to node {values['node.id']}, but this node is {node_id} (node.id)"
        )
    if "directory.id" in values:
        try:
            parse_uuid(values["directory.id"])
        except ValueError as error:
            raise ConfigurationError(f"{where}: directory.id: {error}") from None


def _write(storage: Storage, directory: str, cluster_id: str, node_id: int, directory_id: uuid.UUID) -> None:
    content = format_properties(
        {
            "version": _VERSION,
            "cluster.id": cluster_id,
            "node.id": str(node_id),
            "directory.id": format_uuid(directory_id),
        }
    )
    storage.replace_file(os.path.join(directory, FILE_NAME), content.encode("utf-8"))
