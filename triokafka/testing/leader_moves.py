"""Moving the leadership of a partition to any broker of a test's cluster, with its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from triokafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError, for_code

if TYPE_CHECKING:
    from triokafka.broker_stub.controller import Controller
    from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway
    from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
    from triokafka.broker_stub.metadata.image import PartitionImage

_TIMEOUT_MS: Final = 30_000


async def move_leader(
    controller: Controller, gateway: ControllerGateway, topic: str, partition: int, *, to: int | None
) -> int:
    """Make a broker the leader of a partition; see `RunningBroker.move_leader`.

    If cancelled, a reassignment that has begun continues.
    """
    from triokafka.broker_stub.controller.forced_leader import active_leader

    to = active_leader(controller.image, topic, partition, to)
    state = controller.image.partition(topic, partition)
    if state is not None and to not in state.replicas:
        gone = state.leader if state.leader in state.replicas else state.replicas[0]
        target = [to if replica == gone else replica for replica in state.replicas]
        await _reassign(gateway, topic, partition, target)
        await _wait(controller, topic, partition, to)
        if controller.image.partition(topic, partition).leader == to:  # type: ignore[union-attr]
            return to  # the end of the reassignment elected it
    else:
        await _wait(controller, topic, partition, to)
    return await controller.hand_over(topic, partition, to)


async def _reassign(gateway: ControllerGateway, topic: str, partition: int, replicas: list[int]) -> None:
    from triokafka.protocol.api.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    wanted = ReassignablePartition(partition_index=partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=_TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=[wanted])]
    )
    response = await gateway.send(request)
    result = response.responses[0].partitions[0] if response.responses else None
    code = response.error_code or (result.error_code if result is not None else 0)
    if code:
        raise for_code(code)((result.error_message if result is not None else response.error_message) or "")


async def _wait(controller: Controller, topic: str, partition: int, broker_id: int) -> None:
    """Wait until a broker is in sync, and no reassignment of the partition is going on."""
    changed = trio.Event()

    def published(delta: MetadataDelta, image: MetadataImage) -> None:
        nonlocal changed
        changed.set()
        changed = trio.Event()

    controller.metadata.publisher.subscribe(published)
    try:
        with trio.move_on_after(_TIMEOUT_MS / 1000):
            while True:
                state = controller.image.partition(topic, partition)
                if state is None:
                    raise UnknownTopicOrPartitionError(f"there is no partition {topic}-{partition}")
                if _is_ready(state, broker_id):
                    return
                await changed.wait()
    finally:
        controller.metadata.publisher.unsubscribe(published)
    raise KafkaTimeoutError(f"broker {broker_id} has not replicated {topic}-{partition} within {_TIMEOUT_MS} ms")


def _is_ready(state: PartitionImage, broker_id: int) -> bool:
    return broker_id in state.isr and not state.reassigning
