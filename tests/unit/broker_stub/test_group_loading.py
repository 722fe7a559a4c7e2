"""When a broker loads the groups that it now coordinates."""

from __future__ import annotations

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.node import Node
from triokafka.world.system import RealWorld


async def test_metadata_change_does_not_wait_for_a_coordinator_that_loads() -> None:
    """The log may be large; only the small part of a change itself is read at once."""
    broker = Node(BrokerConfig(), world=RealWorld()).broker
    broker.group_coordinator.runtime.load(0, leader_epoch=0)
    change = MetadataDelta(MetadataImage())
    broker.publisher.metadata_changed(change, change.image(1, 1))
    assert broker.group_coordinator.runtime.is_loading
