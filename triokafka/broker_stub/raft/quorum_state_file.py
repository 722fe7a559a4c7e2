"""The file ``quorum-state`` beside the metadata log: the election state of one node, in Kafka's JSON format."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from triokafka.broker_stub.raft.quorum_state import ElectionState
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.errors import ConfigurationError
from triokafka.structs import format_uuid, parse_uuid
from triokafka.world import Storage

QUORUM_STATE_FILE: Final = "quorum-state"
_NONE: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
_MAX_VERSION: Final = 1


class QuorumStateFile:
    """Reads and writes ``quorum-state``. See `QuorumStateStore`.

    Args:
        directory: the folder of the metadata log. It exists.
    """

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self.path = os.path.join(directory, QUORUM_STATE_FILE)

    def read(self) -> ElectionState | None:
        """See `QuorumStateStore`."""
        if not self._storage.exists(self.path):
            return None
        try:
            return _decode(json.loads(self._storage.read_file(self.path)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{self.path} cannot be read: {error!r}. Restore it from a backup. If this node is the only voter of "
                f"its quorum, move the file away: the metadata log has the epoch too."
            ) from error

    def write(self, state: ElectionState, *, kraft_version: int, voter_ids: Sequence[int]) -> None:
        """See `QuorumStateStore`."""
        content = json.dumps(_encode(state, kraft_version, voter_ids), separators=(",", ":"))
        self._storage.replace_file(self.path, content.encode())


def _encode(state: ElectionState, kraft_version: int, voter_ids: Sequence[int]) -> dict[str, object]:
    leader_id = _NONE if state.leader_id is None else state.leader_id
    voted_id = _NONE if state.voted is None else state.voted.node_id
    if kraft_version:
        voted_directory = UUID(int=0) if state.voted is None else state.voted.wire_directory_id
        return {
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "votedDirectoryId": format_uuid(voted_directory),
            "data_version": 1,
        }
    return {
        "clusterId": "",
        "leaderId": leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
        "data_version": 0,
    }


def _decode(found: object) -> ElectionState:
    if not isinstance(found, Mapping):
        raise ValueError("it is no JSON object")
    version = _integer(found, "data_version")
    if not 0 <= version <= _MAX_VERSION:
        raise ValueError(f"data_version {version} is not supported")
    epoch = _integer(found, "leaderEpoch")
    leader_id, voted_id = _integer(found, "leaderId"), _integer(found, "votedId")
    voted_directory = parse_uuid(str(found["votedDirectoryId"])) if version >= 1 else None
    return ElectionState(
        max(0, epoch),
        None if leader_id == _NONE else leader_id,
        None if voted_id == _NONE else ReplicaKey.of(voted_id, voted_directory),
    )


def _integer(found: Mapping[str, object], name: str) -> int:
    value = found[name]
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= _MAX_EPOCH:
        raise ValueError(f"{name} is {value!r}")
    return value
