"""The time without a leader when a node dies or hangs that led both a partition and the quorum. In virtual time."""

from __future__ import annotations

import trio

import triokafka
from tests.support.simulated import current_simulation, simulated
from tests.support.simulated_cluster import SimulatedCluster
from triokafka.cli.connection import TIMEOUT_MS

SESSION_SECONDS = 9.0


@simulated
async def test_new_controller_includes_the_previous_ones_silence_in_its_session() -> None:
    """The node of the former controller is fenced one session timeout after its death, not after the election."""
    cluster = SimulatedCluster(
        current_simulation(), broker_session_timeout_ms=int(SESSION_SECONDS * 1000), broker_heartbeat_interval_ms=2_000
    )
    cluster.start()
    await cluster.create_topics({"orders": 3})
    victim = next(node for node in cluster.nodes if node.node is not None and node.node.is_active_controller)
    assert victim.node is not None
    partitions = victim.node.metadata.image.topics["orders"].partitions
    led = next(number for number, partition in partitions.items() if partition.leader == victim.number)
    async with triokafka.Producer(
        bootstrap_servers=cluster.bootstrap, world=cluster.client_world(), linger_ms=0, delivery_timeout_ms=60_000
    ) as producer:
        await (await producer.send("orders", b"before", partition=led))
        await victim.kill()
        began = trio.current_time()
        await (await producer.send("orders", b"after", partition=led))
    assert SESSION_SECONDS - 0.6 < trio.current_time() - began < SESSION_SECONDS + 1.3
    await cluster.stop()


@simulated
async def test_command_outlasts_a_controller_that_hangs() -> None:
    """The other nodes elect a new controller within the command's default time.

    Until the session of the stopped node ends, which takes longer, all brokers name that node as the controller.
    """
    cluster = SimulatedCluster(
        current_simulation(), broker_session_timeout_ms=int(SESSION_SECONDS * 1000), broker_heartbeat_interval_ms=2_000
    )
    cluster.start()
    stopped = cluster.nodes[0]
    while (active := await cluster.wait_active()) is not stopped:
        await active.kill()
        active.start()
        await active.wait_started()
    await cluster.wait_unfenced()
    stopped.host.world.pause()
    for name in ("orders", "invoices"):  # during the election, and after it
        async with cluster.admin() as admin:
            await admin.create_topics([name], timeout_ms=TIMEOUT_MS)
            controller = (await admin.describe_cluster()).controller
            assert controller is not None and controller.node_id == stopped.number
    stopped.host.world.resume()
    await cluster.wait_in_sync({"orders": 1, "invoices": 1})
    await cluster.stop()


@simulated
async def test_restarted_follower_is_in_sync_as_soon_as_it_is_unfenced() -> None:
    """It has all records before that, so the leader does not let it wait for new ones."""
    cluster = SimulatedCluster(current_simulation(), replica_fetch_wait_max_ms=10_000)
    cluster.start()
    await cluster.create_topics({"orders": 1})
    state = cluster.nodes[0].image.topics["orders"].partitions[0]
    leader, active = cluster.nodes[state.leader - 1], await cluster.wait_active()
    follower = next(node for node in cluster.nodes if node not in (leader, active))
    await follower.stop()
    await leader.wait_for(lambda image: len(image.topics["orders"].partitions[0].isr) == 2)
    follower.start()
    await leader.wait_for(lambda image: image.brokers[follower.number].active)
    with trio.fail_after(0.5):
        await leader.wait_for(lambda image: len(image.topics["orders"].partitions[0].isr) == 3)
    await cluster.stop()
