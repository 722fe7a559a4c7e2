"""The common part of every response of a peer: an error code, and the leader and epoch that the peer knows."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from triokafka import errors
from triokafka.broker_stub.raft.messages import NodeAddress, endpoints_of_nodes, known_id
from triokafka.broker_stub.raft.state_transitions import Quorum
from triokafka.structs import Node

logger = logging.getLogger(__name__)

_REPEAT_MS: Final = 60_000
"""The shortest interval between two log lines about the same answer of a node, which comes up to 50 times a second."""


class Responses:
    """Takes over epochs and leaders from answers, and judges errors."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._reported: dict[tuple[int, int], int] = {}  # wall clock by node and error

    def common(
        self, error: int, leader_id: int, epoch: int, nodes: Iterable[NodeAddress], source: Node, now: float
    ) -> bool | None:
        """Learn from an answer.

        Args:
            leader_id: the leader of ``epoch`` that the answer names; -1 for none.
            nodes: the addresses in the answer, under the listener that the request was sent to.

        Returns:
            None when the caller has to continue with the content; else whether the peer may be asked again without a
            pause.
        """
        quorum = self._quorum
        endpoints = endpoints_of_nodes(leader_id, nodes, quorum.config.controller_listener)
        leader = known_id(leader_id)
        if epoch < quorum.epoch or error == errors.UnknownLeaderEpochError.code:
            return True  # an old answer, or the peer is behind and will learn
        if epoch > quorum.epoch or error in (
            errors.FencedLeaderEpochError.code,
            errors.NotLeaderForPartitionError.code,
        ):
            before = quorum.state
            quorum.learn(leader, epoch, endpoints, now)
            return quorum.state is not before  # else the peer knows nothing new: not again at once
        if leader is not None and quorum.leader_id is None:
            quorum.learn(leader, epoch, endpoints, now)
            return None if error == 0 else True
        if error == errors.BrokerNotAvailableError.code:
            return False
        if error == errors.InvalidVoterKeyError.code:
            logger.info(
                "Node %d: node %d refuses the request, which names another directory id than its own",
                quorum.config.node_id,
                source.node_id,
            )
            return True
        if error == errors.InvalidRequestError.code:
            return self.unexpected(source, error)
        return None

    def unexpected(self, source: Node, error: int) -> bool:
        """Log an error without a remedy; the peer may be asked again after a pause."""
        config, now_ms = self._quorum.config, self._quorum.wall_ms()
        before = self._reported.get((source.node_id, error))
        if before is not None and 0 <= now_ms - before < _REPEAT_MS:  # the clock may have moved back
            return False
        self._reported[source.node_id, error] = now_ms
        remedy = ""
        if error == errors.InconsistentClusterIdError.code:
            remedy = f": this node belongs to cluster {config.cluster_id}. Compare cluster.id in the meta.properties"
        logger.warning(
            "Node %d: node %d at %s answers with %s%s",
            config.node_id, source.node_id, source.address, errors.for_code(error).__name__, remedy,
        )  # fmt: skip
        return False
