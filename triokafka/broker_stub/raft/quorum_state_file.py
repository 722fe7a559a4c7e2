"""The file ``quorum-state`` beside the metadata log: the election state of one node, in Kafka's JSON format.

A checksum is added to Kafka's fields, because a changed digit would let a node vote twice in an epoch. Kafka ignores
it, and leaves it out of the files that it writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from triokafka.broker_stub.raft.election_state import ElectionState
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.checksum import crc32c
from triokafka.errors import ConfigurationError
from triokafka.structs import format_uuid, parse_uuid
from triokafka.world import Storage

QUORUM_STATE_FILE: Final = "quorum-state"
_NONE: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
_MAX_VERSION: Final = 1
_CHECKSUM: Final = "crc32c"
_FIELDS: Final = frozenset(
    {
        "clusterId",
        "leaderId",
        "leaderEpoch",
        "votedId",
        "votedDirectoryId",
        "appliedOffset",
        "currentVoters",
        "data_version",
    }
)


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
            found = json.loads(self._storage.read_file(self.path))
            _check(found)
            return _decode(found)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{self.path} cannot be read: {error!r}. Restore it from a backup. If this node is the only voter of "
                f"its quorum, move the file away: the metadata log has the epoch too."
            ) from error

    def write(self, state: ElectionState, *, kraft_version: int, voter_ids: Sequence[int]) -> None:
        """See `QuorumStateStore`."""
        fields = _encode(state, kraft_version, voter_ids)
        fields[_CHECKSUM] = _checksum(fields)
        self._storage.replace_file(self.path, _compact(fields))


def _compact(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _checksum(fields: Mapping[str, object]) -> int:
    return crc32c(_compact({name: value for name, value in fields.items() if name != _CHECKSUM}))


def _check(found: object) -> None:
    if not isinstance(found, Mapping):
        return
    # Every field of both versions that Kafka knows has another name: one beside them is the checksum, maybe damaged.
    if not found.keys() <= _FIELDS and found.get(_CHECKSUM) != _checksum(found):
        raise ValueError("the checksum does not match the content")


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
        raise ValueError("it is not a JSON object")
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
        raise ValueError(f"{name} has the invalid value {value!r}")
    return value
