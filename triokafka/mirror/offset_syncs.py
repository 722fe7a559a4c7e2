"""Writing the offset syncs of a flow: pairs of a source offset and its target offset, as MirrorMaker 2 stores them."""

from __future__ import annotations

from triokafka.client.producer.producer import Producer
from triokafka.errors import KafkaError
from triokafka.mirror.flow_state import FlowState
from triokafka.protocol.stored.mirror_maker import OffsetSyncKey, OffsetSyncValue


async def write_offset_syncs(producer: Producer, topic: str, state: FlowState) -> None:
    """Write the syncs that are due, and wait until they are stored; after an error they stay due."""
    syncs = state.take_syncs()
    try:
        deliveries = []
        for (synced_topic, number), (upstream, downstream) in syncs.items():
            key = OffsetSyncKey(topic=synced_topic, partition=number)
            value = OffsetSyncValue(upstream_offset=upstream, offset=downstream)
            deliveries.append(await producer.send(topic, value.encode(0), key=key.encode(0), partition=0))
        for delivery in deliveries:
            await delivery
    except KafkaError:
        state.return_syncs(syncs)
        raise
