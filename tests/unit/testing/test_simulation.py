"""The simulated world itself: time, network, crashes, and the same trace for the same seed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time as real_time

import pytest
import trio

from triokafka.errors import IllegalStateError
from triokafka.testing.simulated_world import SimulatedWorld
from triokafka.testing.simulation_run import Simulation, run_simulation, simulation
from triokafka.world import Stream


async def read_all(stream: Stream) -> bytes:
    received = b""
    buffer = memoryview(bytearray(1000))
    while size := await stream.receive_into(buffer):
        received += buffer[:size]
    return received


def test_bytes_arrive_complete_and_in_order_in_spite_of_loss_and_delay() -> None:
    async def scenario(world: Simulation) -> bytes:
        world.network.conditions.loss = 0.3
        world.network.conditions.max_delay = 0.5
        listener = await world.host("server").world.listen("server", 1)
        client = await world.host("client").world.connect("server", 1)
        server = await listener.accept()
        for i in range(100):
            await client.send(b"%03d" % i, b",")
        client.close()
        return await read_all(server)

    assert run_simulation(scenario, seed=1) == b"".join(b"%03d," % i for i in range(100))


def test_nothing_passes_a_partition_until_it_heals() -> None:
    async def scenario(world: Simulation) -> tuple[bool, int]:
        listener = await world.host("server").world.listen("server", 1)
        client = await world.host("client").world.connect("server", 1)
        server = await listener.accept()
        world.network.partition("client", "server")
        await client.send(b"held back")
        buffer = memoryview(bytearray(100))
        with trio.move_on_after(60) as waited:
            await server.receive_into(buffer)
        world.network.heal()
        return waited.cancelled_caught, await server.receive_into(buffer)

    assert run_simulation(scenario, seed=1) == (True, 9)


def test_a_full_window_holds_the_sender_until_the_receiver_reads() -> None:
    async def scenario(world: Simulation) -> bool:
        listener = await world.host("server").world.listen("server", 1)
        client = await world.host("client").world.connect("server", 1)
        server = await listener.accept()
        with trio.move_on_after(5) as waited:
            await client.send(bytes(4 << 20))
        server.close()
        return waited.cancelled_caught

    assert run_simulation(scenario, seed=1)


def test_killing_a_process_resets_its_connections_and_closes_its_doors() -> None:
    async def scenario(world: Simulation) -> None:
        server_host = world.host("server")
        dead = server_host.world
        accepted = trio.Event()

        async def serve(process: object) -> None:
            listener = await dead.listen("server", 1)
            stream = await listener.accept()
            accepted.set()
            await read_all(stream)

        server_host.start(serve)
        await trio.sleep(1)
        client = await world.host("client").world.connect("server", 1)
        await accepted.wait()
        await server_host.kill()
        with pytest.raises(ConnectionResetError):
            await client.receive_into(memoryview(bytearray(1)))
        with pytest.raises(ConnectionRefusedError):
            await world.host("client").world.connect("server", 1)
        with pytest.raises(OSError, match="dead"):
            await dead.connect("client", 1)
        with pytest.raises(OSError, match="dead"):
            dead.storage.open("file", create=True)

    run_simulation(scenario, seed=1)


def test_power_cut_loses_unsynced_data_and_keeps_synced_data() -> None:
    async def scenario(world: Simulation) -> bytes:
        host = world.host("server")
        file = host.world.storage.open("file", create=True)
        host.world.storage.sync_dir("")
        file.write_at(0, b"synced")
        file.sync()
        file.write_at(6, b" and not")
        await host.kill(power_cut=True)
        return host.world.storage.read_file("file")[:6]

    assert run_simulation(scenario, seed=3) == b"synced"


def test_process_may_die_between_two_disk_operations() -> None:
    async def scenario(world: Simulation) -> tuple[bytes, str]:
        host = world.host("server")
        written: list[str] = []

        def die_at_the_second_write(operation: str, path: str, size: int) -> None:
            if operation == "write":
                written.append(path)
                if len(written) == 2:
                    host.die()

        async def write(process: SimulatedWorld) -> None:
            file = process.storage.open("file", create=True)
            host.disk.before_operation = die_at_the_second_write
            for number in range(4):
                file.write_at(number, b"%d" % number)

        host.start(write)
        await trio.sleep(1)
        await host.kill()
        host.disk.before_operation = None
        return host.world.storage.read_file("file"), "".join(world.recent_events())

    data, events = run_simulation(scenario, seed=1)
    assert data == b"01", "the write in which it died was done, and none after it"
    assert events.count("kill server") == 1


def test_a_paused_process_is_silent_until_it_is_resumed() -> None:
    async def scenario(world: Simulation) -> tuple[bool, int]:
        listener = await world.host("server").world.listen("server", 1)
        client = await world.host("client").world.connect("server", 1)
        server = await listener.accept()
        await client.send(b"x")
        world.host("server").world.pause()
        buffer = memoryview(bytearray(1))
        with trio.move_on_after(10) as waited:
            await server.receive_into(buffer)
        world.host("server").world.resume()
        return waited.cancelled_caught, await server.receive_into(buffer)

    assert run_simulation(scenario, seed=1) == (True, 1)


def test_clocks_of_hosts_may_differ() -> None:
    async def scenario(world: Simulation) -> None:
        world.host("late").clock_skew = -30.0
        await world.host("late").kill()
        late, right = world.host("late").world, world.host("right").world
        assert right.wall_ms() - late.wall_ms() == 30_000
        assert late.deadline(late.now() + 1) == pytest.approx(right.deadline(right.now() + 1))

    run_simulation(scenario, seed=1)


@pytest.mark.parametrize("skew", [-40.0, -3.0, 0.0, 640.0])
def test_a_wait_by_the_clock_of_a_host_ends_whatever_its_skew(skew: float) -> None:
    """The rest of a wait may be smaller than the precision of Trio's clock, which would then not advance."""

    async def scenario(world: Simulation) -> None:
        world.host("host").clock_skew = skew
        await world.host("host").kill()
        host = world.host("host").world
        await trio.sleep(41)
        for _ in range(500):
            until, rounds = host.now() + world.random.random(), 0
            while (left := until - host.now()) > 0:
                await trio.sleep(left)
                rounds += 1
                assert rounds < 10, left

    run_simulation(scenario, seed=1)


def test_wall_clock_of_a_running_process_jumps_without_its_other_clock() -> None:
    async def scenario(world: Simulation) -> None:
        host = world.host("host").world
        now, wall_ms = host.now(), host.wall_ms()
        host.wall_skew = -40.0
        assert (host.now(), host.wall_ms()) == (now, wall_ms - 40_000)

    run_simulation(scenario, seed=1)


def test_the_bodys_own_exception_leaves_as_itself_with_the_seed_in_a_note() -> None:
    async def scenario(world: Simulation) -> None:
        world.record("before", "the", "end")
        raise ValueError("a finding")

    with pytest.raises(ValueError, match="a finding") as caught:
        run_simulation(scenario, seed=77)
    notes = "\n".join(caught.value.__notes__)
    assert "seed 77" in notes
    assert "before the end" in notes


async def test_simulation_on_the_real_clock_is_refused() -> None:
    with pytest.raises(IllegalStateError, match="virtual clock"):
        async with simulation(1):
            pass


async def chatter(world: Simulation) -> str:
    """Many tasks that send at random: any change of order would change the trace."""
    world.network.conditions.loss = 0.05
    world.network.conditions.cut = 0.01
    listener = await world.host("server").world.listen("server", 1)

    async def answer() -> None:
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(echo, await listener.accept())

    async def echo(stream: Stream) -> None:
        buffer = memoryview(bytearray(100))
        try:
            while size := await stream.receive_into(buffer):
                await stream.send(bytes(buffer[:size]))
        except OSError:
            stream.close()

    async def talk(number: int) -> None:
        process = world.host(f"client-{number}").world
        for _ in range(3):
            stream = await process.connect("server", 1)
            try:
                for _ in range(10):
                    await stream.send(process.random_bytes(process.random.randrange(1, 50)))
                    await stream.receive_into(memoryview(bytearray(100)))
            except OSError:
                pass
            stream.close()

    world.nursery.start_soon(answer)
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(talk, number)
    return world.trace_digest()


def test_one_seed_gives_one_trace_and_another_seed_another() -> None:
    assert run_simulation(chatter, seed=5) == run_simulation(chatter, seed=5)
    assert run_simulation(chatter, seed=5) != run_simulation(chatter, seed=6)


def test_one_seed_gives_the_same_trace_in_another_process() -> None:
    program = (
        "from tests.unit.testing.test_simulation import chatter\n"
        "from triokafka.testing.simulation_run import run_simulation\n"
        "print(run_simulation(chatter, seed=9))\n"
    )
    digests = {
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
        for _ in range(2)
    }
    assert digests == {run_simulation(chatter, seed=9)}


def test_a_trio_run_in_another_thread_changes_nothing() -> None:
    async def story(world: Simulation) -> list[int]:
        order: list[int] = []

        async def step(number: int) -> None:
            for _ in range(5):
                await trio.sleep(0)
                order.append(number)
                real_time.sleep(0.0002)  # the other thread has its turn

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(step, number)
        return order

    alone = run_simulation(story, 5)
    over = threading.Event()

    async def busy() -> None:
        while not over.is_set():
            await trio.sleep(0)

    other = threading.Thread(target=trio.run, args=(busy,))
    other.start()
    try:
        assert run_simulation(story, 5) == alone
    finally:
        over.set()
        other.join()
