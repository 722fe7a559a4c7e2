"""Copies topics and the positions of consumer groups from one cluster to another, as MirrorMaker 2 does (KIP-382).

`Mirror` is one flow from a source to a target cluster. It writes MirrorMaker's offset syncs, checkpoints and
heartbeats, so that Java's ``RemoteClusterUtils`` and MirrorMaker itself can continue from it, and the reverse.
"""

from triokafka.mirror.mirror import Mirror, MirrorStatus
from triokafka.mirror.options import MirrorOptions

__all__ = ["Mirror", "MirrorOptions", "MirrorStatus"]
