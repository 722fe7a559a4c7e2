"""Changes of the voter set (KIP-853): AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter.

The leader changes one voter at a time: a change waits for the commitment of the one before, and of a record of the
leader's own epoch. A voters record is effective as soon as it is in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from triokafka import errors
from triokafka.broker_stub.raft import messages
from triokafka.broker_stub.raft.effects import PendingResponse
from triokafka.broker_stub.raft.fetch_server import leader_error
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.state_transitions import Quorum
from triokafka.broker_stub.raft.states import Endpoints
from triokafka.broker_stub.raft.voter_set import Voter, VoterSet, node_of
from triokafka.protocol.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from triokafka.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from triokafka.protocol.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from triokafka.protocol.api.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from triokafka.structs import Node, format_uuid

KRAFT_VERSION = "kraft.version"
_TIMED_OUT = errors.RequestTimedOutError.code


@dataclass(slots=True)
class _Addition:
    """AddRaftVoter in progress; ``offset`` is that of the voters record, -1 while the versions are unknown."""

    voter: ReplicaKey
    endpoints: Endpoints
    reply: PendingResponse[AddRaftVoterResponse]
    expires_at: float
    ack_when_committed: bool
    offset: int = -1


@dataclass(slots=True)
class _Removal:
    """RemoveRaftVoter in progress: its voters record has ``offset``."""

    reply: PendingResponse[RemoveRaftVoterResponse]
    expires_at: float
    offset: int


def _versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="triokafka", client_software_version="quorum")


class VoterChanges:
    """The leader's side of changes to the voter set.

    Args:
        append_voters: appends a voters record to the leader's log and returns its offset.
        append_version: appends records of a new ``kraft.version`` and of the voters.
    """

    def __init__(
        self,
        quorum: Quorum,
        append_voters: Callable[[VoterSet, float], int],
        append_version: Callable[[int, VoterSet], object],
    ) -> None:
        self._quorum = quorum
        self._append_voters = append_voters
        self._append_version = append_version
        self._announced: dict[int, Voter] = {}
        self._addition: _Addition | None = None
        self._removal: _Removal | None = None

    # Checks

    def _request_error(self, cluster_id: str | None, epoch: int) -> tuple[int, str | None]:
        quorum = self._quorum
        if not messages.is_cluster(cluster_id, quorum.config.cluster_id):
            message = f"the request is for cluster {cluster_id}, but this is {quorum.config.cluster_id}"
            return errors.InconsistentClusterIdError.code, message
        return leader_error(quorum, epoch), None

    def _obstacle(self, leader: Leader, change: str) -> tuple[int, str | None]:
        """Return error code and message of the reason why no change can begin now; 0 if it can.

        ``change`` is "adding", "removing" or "updating", for the message.
        """
        history = self._quorum.history
        if self._addition is not None or self._removal is not None:
            return _TIMED_OUT, "an earlier change of the voters is in progress"
        if leader.high_watermark is None:
            return _TIMED_OUT, "the leader has not committed a record of its epoch yet"
        if history.kraft_version < 1:
            message = f"Cluster doesn't support {change} voter because the {KRAFT_VERSION} feature is"
            return errors.UnsupportedVersionError.code, f"{message} {history.kraft_version}"
        if history.voters_offset is None or history.voters_offset >= leader.high_watermark:
            return _TIMED_OUT, "the last change of the voters is not committed yet"
        return 0, None

    # AddRaftVoter

    def add(self, request: AddRaftVoterRequest, *, now: float) -> PendingResponse[AddRaftVoterResponse]:
        """Add a voter that is caught up, after asking it for its versions.

        Errors: INCONSISTENT_CLUSTER_ID, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST, REQUEST_TIMED_OUT,
        UNSUPPORTED_VERSION, DUPLICATE_VOTER.
        """
        quorum, reply = self._quorum, PendingResponse[AddRaftVoterResponse]()
        config = quorum.config
        key = ReplicaKey.of(request.voter_id, request.voter_directory_id)
        endpoints = messages.endpoints_of_listeners(request.listeners)
        node = node_of(key.node_id, endpoints, config.controller_listener)
        error, message = self._request_error(request.cluster_id, quorum.epoch)
        leader = quorum.state
        if not error and isinstance(leader, Leader):
            if key.node_id < 0 or key.directory_id is None:
                error, message = errors.InvalidRequestError.code, "the request names no valid voter"
            elif node is None:
                error = errors.InvalidRequestError.code
                message = f"the request has no endpoint for the listener {config.controller_listener}"
            else:
                error, message = self._obstacle(leader, "adding")
                if not error and key.node_id in quorum.voters:
                    error, message = errors.DuplicateVoterError.code, f"node {key.node_id} is a voter already"
        if error or node is None:
            quorum.effects.answer(reply, AddRaftVoterResponse(error_code=error, error_message=message))
            return reply
        timeout = config.request_timeout_ms / 1000
        quorum.peers.send_now(node, _versions_request(), now)
        self._addition = _Addition(key, endpoints, reply, now + timeout, request.ack_when_committed)
        return reply

    def versions_received(self, source: Node, response: ApiVersionsResponse, now: float) -> bool:
        """Go on with the new voter's versions. Returns whether the peer may be asked again without a pause."""
        addition, leader = self._addition, self._quorum.state
        if addition is None or addition.offset >= 0 or addition.voter.node_id != source.node_id:
            return True
        if not isinstance(leader, Leader):
            return True
        if response.error_code:
            self._end_addition(_TIMED_OUT, f"the new voter answers ApiVersions with error {response.error_code}")
            return False
        supported = [feature for feature in response.supported_features if feature.name == KRAFT_VERSION]
        low, high = (supported[0].min_version, supported[0].max_version) if supported else (0, 0)
        level = self._quorum.history.kraft_version
        if not low <= level <= high:
            self._end_addition(
                errors.InvalidRequestError.code,
                f"the new voter supports {KRAFT_VERSION} {low} to {high}, but the cluster has {level}",
            )
            return True
        if not leader.is_caught_up(addition.voter, now):
            self._end_addition(_TIMED_OUT, f"the new voter {addition.voter.node_id} has not caught up with the leader")
            return True
        voters = self._quorum.voters.with_voter(Voter(addition.voter, addition.endpoints, low, high))
        if voters is None:
            self._end_addition(errors.DuplicateVoterError.code, f"node {source.node_id} is a voter already")
            return True
        addition.offset = self._append_voters(voters, now)
        if not addition.ack_when_committed:
            self._quorum.effects.answer(addition.reply, AddRaftVoterResponse(error_code=0, error_message=None))
        return True

    def versions_failed(self, source: Node) -> None:
        """End an addition whose new voter cannot be reached."""
        if self._addition is not None and self._addition.offset < 0 and self._addition.voter.node_id == source.node_id:
            self._end_addition(_TIMED_OUT, f"the new voter {source.node_id} cannot be reached at {source.address}")

    def _end_addition(self, error: int, message: str | None) -> None:
        addition, self._addition = self._addition, None
        if addition is not None:
            self._quorum.effects.answer(addition.reply, AddRaftVoterResponse(error_code=error, error_message=message))

    # RemoveRaftVoter

    def remove(self, request: RemoveRaftVoterRequest, *, now: float) -> PendingResponse[RemoveRaftVoterResponse]:
        """Remove a voter. The leader that removes itself leads until the change is committed, and then resigns.

        Errors: INCONSISTENT_CLUSTER_ID, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST, REQUEST_TIMED_OUT,
        UNSUPPORTED_VERSION, VOTER_NOT_FOUND.
        """
        quorum, reply = self._quorum, PendingResponse[RemoveRaftVoterResponse]()
        key = ReplicaKey.of(request.voter_id, request.voter_directory_id)
        error, message = self._request_error(request.cluster_id, quorum.epoch)
        leader = quorum.state
        voters: VoterSet | None = None
        if not error and isinstance(leader, Leader):
            if key.node_id < 0 or key.directory_id is None:
                error, message = errors.InvalidRequestError.code, "the request names no valid voter"
            else:
                error, message = self._obstacle(leader, "removing")
        if not error:
            voters = quorum.voters.without_voter(key)
            if voters is None:
                error = errors.VoterNotFoundError.code
                message = (
                    f"node {key.node_id} with directory {format_uuid(key.wire_directory_id)} is not in the voter set,"
                    f" or is the only voter; voters: {', '.join(map(str, quorum.voters.ids))}"
                )
        if voters is None:
            quorum.effects.answer(reply, RemoveRaftVoterResponse(error_code=error, error_message=message))
            return reply
        offset = self._append_voters(voters, now)
        self._removal = _Removal(reply, now + quorum.config.request_timeout_ms / 1000, offset)
        return reply

    def _end_removal(self, error: int, message: str | None) -> None:
        removal, self._removal = self._removal, None
        if removal is not None:
            self._quorum.effects.answer(removal.reply, RemoveRaftVoterResponse(error_code=error, error_message=message))

    # UpdateRaftVoter

    def update(self, request: UpdateRaftVoterRequest, *, listener: str, now: float) -> UpdateRaftVoterResponse:
        """Take over a voter's endpoints and versions.

        Errors: INCONSISTENT_CLUSTER_ID, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER,
        INVALID_REQUEST, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION, VOTER_NOT_FOUND.
        """
        return messages.update_voter_response(self._quorum, listener, error=self._update(request, now))

    def _update(self, request: UpdateRaftVoterRequest, now: float) -> int:
        quorum = self._quorum
        config = quorum.config
        key = ReplicaKey.of(request.voter_id, request.voter_directory_id)
        endpoints = messages.endpoints_of_listeners(request.listeners)
        low, high = messages.kraft_versions(request)
        error, _ = self._request_error(request.cluster_id, request.current_leader_epoch)
        leader = quorum.state
        if error or not isinstance(leader, Leader):
            return error
        if (
            key.node_id < 0
            or key.directory_id is None
            or node_of(key.node_id, endpoints, config.controller_listener) is None
            or not 0 <= low <= high
        ):
            return errors.InvalidRequestError.code
        if not quorum.history.kraft_version:
            return self._announce(Voter(key, endpoints, low, high))
        error, _ = self._obstacle(leader, "updating")
        if error:
            return error
        if not low <= quorum.history.kraft_version <= high:
            return errors.InvalidRequestError.code
        voters = quorum.voters.with_updated(Voter(key, endpoints, low, high))
        if voters is None:
            return errors.VoterNotFoundError.code
        if voters != quorum.voters:
            self._append_voters(voters, now)
        return 0

    # kraft.version

    def _announce(self, voter: Voter) -> int:
        """Keep the directory and the addresses of a static voter for an upgrade of ``kraft.version``."""
        if self._quorum.voters.with_updated(voter) is None:
            return errors.VoterNotFoundError.code
        self._announced[voter.node_id] = voter
        return 0

    def upgrade(self, level: int, *, validate_only: bool) -> None:
        """Raise ``kraft.version``, which turns static voters into dynamic ones (KIP-853).

        Raises:
            NotControllerError: this node does not lead the quorum, or has not committed a record of its epoch yet.
            InvalidUpdateVersionError: a voter does not support the level, or has not announced its directory yet.
        """
        quorum = self._quorum
        leader = quorum.state
        if not isinstance(leader, Leader) or leader.high_watermark is None:
            raise errors.NotControllerError("this node does not lead the metadata quorum")
        if level <= quorum.history.kraft_version:
            return
        known = {**self._announced, quorum.config.node_id: quorum.config.voter}
        missing = [node_id for node_id in quorum.voters.ids if node_id not in known]
        if missing:
            raise errors.InvalidUpdateVersionError(
                f"{KRAFT_VERSION} cannot become {level}: the leader does not know the log directories of the voters "
                f"{missing} yet. Make sure that they run, and try again in some seconds"
            )
        voters = VoterSet(known[node_id] for node_id in quorum.voters.ids)
        for voter in voters:
            if not voter.min_kraft_version <= level <= voter.max_kraft_version:
                raise errors.InvalidUpdateVersionError(
                    f"{KRAFT_VERSION} cannot become {level}: the voter {voter.node_id} supports "
                    f"{voter.min_kraft_version} to {voter.max_kraft_version}"
                )
        if not validate_only:
            self._append_version(level, voters)

    # Events

    def committed(self, high_watermark: int) -> None:
        """Answer changes whose record is committed."""
        if self._addition is not None and 0 <= self._addition.offset < high_watermark:
            self._end_addition(0, None)
        if self._removal is not None and self._removal.offset < high_watermark:
            self._end_removal(0, None)

    def left_leadership(self) -> None:
        """Fail pending changes: their records may be committed by the next leader, or not."""
        self._end_addition(errors.NotLeaderForPartitionError.code, "the leader has changed")
        self._end_removal(errors.NotLeaderForPartitionError.code, "the leader has changed")
        self._announced.clear()

    def poll(self, now: float) -> float:
        """Time out pending changes; return when the next one ends."""
        message = "the change was not committed in time"
        if self._addition is not None and self._addition.expires_at <= now:
            self._end_addition(_TIMED_OUT, message)
        if self._removal is not None and self._removal.expires_at <= now:
            self._end_removal(_TIMED_OUT, message)
        return min(
            (change.expires_at for change in (self._addition, self._removal) if change is not None),
            default=float("inf"),
        )
