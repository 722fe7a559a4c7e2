"""Names of mirrored topics and of a flow's internal topics, as MirrorMaker 2 forms them (KIP-382). Pure."""

from __future__ import annotations

from typing import Final, Protocol

HEARTBEATS: Final = "heartbeats"


class Naming(Protocol):
    """How a topic of the source cluster is called in the target cluster. MirrorMaker's ``replication.policy.class``."""

    def remote_topic(self, source: str, topic: str) -> str:
        """Return the name that ``topic`` of the cluster ``source`` has in a target cluster."""

    def is_cycle(self, topic: str, target: str) -> bool:
        """Whether ``topic`` of the source cluster came from the cluster ``target``, directly or through others."""


class PrefixNaming:
    """``DefaultReplicationPolicy``: ``orders`` of ``west`` is ``west.orders``. A name shows its origin."""

    def __init__(self, separator: str = ".") -> None:
        if not separator:
            raise ValueError("the separator of remote topic names is empty")
        self._separator = separator

    def remote_topic(self, source: str, topic: str) -> str:
        """Return ``SOURCE.TOPIC``."""
        return f"{source}{self._separator}{topic}"

    def is_cycle(self, topic: str, target: str) -> bool:
        """Whether any prefix of the name is ``target``."""
        *prefixes, _ = topic.split(self._separator)
        return target in prefixes


class IdentityNaming:
    """``IdentityReplicationPolicy``: topics keep their names, which therefore do not show a cycle."""

    def remote_topic(self, source: str, topic: str) -> str:
        """Return the name unchanged; heartbeats get the prefix, as in MirrorMaker."""
        return f"{source}.{topic}" if topic.endswith(HEARTBEATS) else topic

    def is_cycle(self, topic: str, target: str) -> bool:
        """Return False: the name does not show it. `Mirror` reads the other flow's offset syncs instead."""
        return False


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to brokers, Connect, MirrorMaker or the mirror itself; those are never mirrored."""
    return topic.startswith(("__", ".")) or topic.endswith((".internal", "-internal"))


def offset_syncs_topic(other: str) -> str:
    """The topic with offset syncs; ``other`` is the cluster at the other end of the flow."""
    return f"mm2-offset-syncs.{other}.internal"


def checkpoints_topic(source: str) -> str:
    """The topic of the target cluster with the checkpoints of groups of ``source``."""
    return f"{source}.checkpoints.internal"


def positions_topic(source: str) -> str:
    """The topic of the target cluster with the mirror's own progress through ``source``."""
    return f"{source}.mirror-positions.internal"
