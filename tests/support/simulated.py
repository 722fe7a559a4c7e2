"""Tests that run in their own simulated world: decorate them with ``simulated``."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Any

import trio

import triokafka
from triokafka.testing import SimulatedWorld, Simulation, run_simulation, running_broker

_current: ContextVar[Simulation] = ContextVar("simulation")


def current_simulation() -> Simulation:
    """The simulation that the test runs in."""
    return _current.get()


def host_broker(simulation: Simulation, **options: Any) -> None:
    """Start a broker with these options on the host ``broker``, for the rest of the simulation."""

    async def process(world: SimulatedWorld) -> None:
        async with running_broker(world=world, listeners="PLAINTEXT://broker:9092", **options):
            await trio.sleep_forever()

    simulation.host("broker").start(process)


def run_seeds(name: str, seeds: Iterable[int], run: Callable[[int], object]) -> None:
    """Run all seeds of a long run; print failures and progress, and fail at the end with all of them."""
    findings: list[int] = []
    number = 0
    for number, seed in enumerate(seeds, start=1):
        try:
            run(seed)
        except Exception as error:
            findings.append(seed)
            print(f"{name}, seed {seed}: {error!r}", flush=True)
        if number % 100 == 0:
            print(f"{name}: {number} seeds run, {len(findings)} findings", flush=True)
    print(f"{name}: {number} seeds run, {len(findings)} findings", flush=True)
    assert not findings, f"{name}: seeds with findings: {findings}"


def run_in_another_process(scenario: Callable[..., object], seed: int) -> str:
    """Run one seed of a scenario, a function of a module, in a new interpreter; return its result as text."""
    program = (
        f"from {scenario.__module__} import {scenario.__name__}\n"
        "from triokafka.testing import run_simulation\n"
        f"print(run_simulation({scenario.__name__}, {seed}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a virtual clock, with a memory network and seeded randomness."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        async def main(simulation: Simulation) -> None:
            _current.set(simulation)
            await test(**fixtures)

        run_simulation(main, seed=1)

    return run


async def produce_through_faults(
    world: SimulatedWorld,
    name: str,
    topic: str,
    *,
    partitions: int,
    records: int,
    timeout_ms: int,
    acknowledge: Callable[[int, int, bytes], None],
) -> None:
    """Send records with unique values at random intervals to a broker that may fail, until all are acknowledged.

    ``acknowledge`` gets partition, offset and value of each. It takes at most ``timeout_ms``.
    """
    async with triokafka.Producer(
        world=world,
        bootstrap_servers="broker:9092",
        acks="all",
        linger_ms=20,
        batch_size=500,
        delivery_timeout_ms=timeout_ms,
        request_timeout_ms=5_000,
        max_block_ms=timeout_ms,
        close_timeout_ms=timeout_ms,
    ) as producer:
        deliveries = []
        for number in range(records):
            value = f"{name}-{number}".encode()
            deliveries.append((value, await producer.send(topic, value, partition=number % partitions)))
            await trio.sleep(world.random.uniform(0, 0.3))
        for value, delivery in deliveries:
            metadata = await delivery
            acknowledge(metadata.partition, metadata.offset, value)
