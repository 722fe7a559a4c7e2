"""Writing the heartbeats of a flow, which show in its target cluster that it runs, as MirrorMaker 2 does."""

from __future__ import annotations

from triokafka.client.producer.producer import Producer
from triokafka.mirror.naming import HEARTBEATS
from triokafka.mirror.options import MirrorOptions
from triokafka.protocol.stored.mirror_maker import HeartbeatKey, HeartbeatValue


async def write_heartbeat(producer: Producer, options: MirrorOptions, now_ms: int) -> None:
    """Write one heartbeat, and wait until it is stored."""
    key = HeartbeatKey(source_cluster_alias=options.source_alias, target_cluster_alias=options.target_alias)
    value = HeartbeatValue(timestamp=now_ms)
    await (await producer.send(HEARTBEATS, value.encode_versioned(0), key=key.encode(0), partition=0))
