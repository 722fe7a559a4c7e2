"""The recipes for FastAPI and FastStream, and frameworks that import aiokafka themselves."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.support.asyncio_programs import run
from triokafka.asyncio import AIOKafkaConsumer, AIOKafkaProducer

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def python(*arguments: str, **environment: str) -> str:
    """Run Python and return its output. Fails with its error output."""
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=ENVIRONMENT | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_SERVICE = """
import asyncio
from contextlib import AsyncExitStack

import httpx

from examples.fastapi_orders import app


async def main():
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        transport = httpx.ASGITransport(app)
        client = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://test"))
        answers = await asyncio.gather(*(client.post(f"/orders/{n}", params={"dish": f"dish {n}"}) for n in range(20)))
        assert {answer.status_code for answer in answers} == {200}, answers[0].text
        handled = []
        async with asyncio.timeout(60):
            while len(handled) < 20:
                await asyncio.sleep(0.01)
                handled = (await client.get("/orders")).json()
        print(len(set(handled)))
    assert asyncio.all_tasks() == {asyncio.current_task()}


asyncio.run(main())
"""


def test_fastapi_service_sends_handles_and_stops(bootstrap: str, topic: str) -> None:
    pytest.importorskip("fastapi", reason="FastAPI is not installed")
    pytest.importorskip("httpx", reason="httpx is not installed")
    assert python("-c", _SERVICE, KAFKA_BOOTSTRAP_SERVERS=bootstrap, ORDERS_TOPIC=topic).split() == ["20"]

    async def committed() -> int:
        async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=f"{topic}-service") as consumer:
            offsets = [await consumer.committed(partition) for partition in consumer.assignment()]
            return sum(offset or 0 for offset in offsets)

    assert run(committed()) in (19, 20)  # the end of the service may interrupt the last commit


def test_faststream_runs_over_triokafka(bootstrap: str) -> None:
    pytest.importorskip("faststream", reason="FastStream is not installed")
    assert "two pizzas, cooked" in python(str(ROOT / "examples" / "faststream_orders.py"), bootstrap).splitlines()


_INSTALLED = """
from triokafka.asyncio.as_aiokafka import install_as_aiokafka

install_as_aiokafka()
install_as_aiokafka()

import aiokafka
import aiokafka.admin
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.producer.producer import _missing
from aiokafka.structs import TopicPartition

import triokafka.asyncio


class Message(ConsumerRecord[bytes, bytes]):
    consumer: object


assert AIOKafkaProducer is triokafka.asyncio.AIOKafkaProducer
assert aiokafka.admin.AIOKafkaAdminClient.__module__.startswith("triokafka.asyncio.")
"""


def test_installed_names_are_those_of_aiokafka() -> None:
    python("-c", _INSTALLED)


def test_installation_after_aiokafka_is_refused() -> None:
    pytest.importorskip("aiokafka")
    code = "import aiokafka; from triokafka.asyncio.as_aiokafka import install_as_aiokafka as i\ntry: i()\n"
    assert "imported already" in python("-c", code + "except RuntimeError as error: print(error)")


_DATACLASS = """
import asyncio, dataclasses, sys
from triokafka.asyncio.as_aiokafka import install_as_aiokafka
install_as_aiokafka()
from aiokafka import AIOKafkaConsumer, ConsumerRecord

async def main(servers, topic):
    for options in ({}, {"value_deserializer": bytes.decode}):
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=servers, auto_offset_reset="earliest", **options
        ) as consumer:
            record = await consumer.getone()
            record.consumer = consumer
            assert type(record) is ConsumerRecord
            print(dataclasses.asdict(record)["value"], record.offset)

asyncio.run(main(*sys.argv[1:]))
"""


def test_records_are_aiokafkas_dataclass_after_the_installation(bootstrap: str, topic: str) -> None:
    async def fill() -> Any:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            return await producer.send_and_wait(topic, b"x")

    run(fill())
    assert python("-c", _DATACLASS, bootstrap, topic).splitlines() == ["b'x' 0", "x 0"]


def test_record_of_a_consumer_is_an_instance_of_the_record_class(bootstrap: str, topic: str) -> None:
    from triokafka.asyncio import ConsumerRecord

    async def program() -> Any:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"x")
        async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            return await asyncio.wait_for(consumer.getone(), 30)

    record = run(program())
    assert isinstance(record, ConsumerRecord)
    assert not isinstance(object(), ConsumerRecord)
    assert ConsumerRecord("t", 0, 1, 2, 0, None, b"v", None, -1, 1, ()).value == b"v"


def readme_programs() -> list[str]:
    """Return the Python programs of aiokafka's README: first a producer, then a consumer."""
    about: Any = metadata("aiokafka")
    lines = str(about.get_payload() or about["Description"]).splitlines()
    programs = []
    for begin, line in enumerate(lines):
        if line.startswith(".. code-block:: python"):
            block = itertools.takewhile(lambda line: not line or line.startswith(" "), lines[begin + 1 :])
            programs.append(textwrap.dedent("\n".join(block)))
    return programs


def test_programs_of_aiokafkas_readme_run_unchanged(bootstrap: str) -> None:
    pytest.importorskip("aiokafka")
    install = "from triokafka.asyncio.as_aiokafka import install_as_aiokafka\ninstall_as_aiokafka()\n"
    produce, consume = (install + one.replace("localhost:9092", bootstrap) for one in readme_programs())
    python("-c", produce)  # creates the topic
    consumer = subprocess.Popen(
        [sys.executable, "-u", "-c", consume], stdout=subprocess.PIPE, env=ENVIRONMENT, text=True
    )
    try:
        assert consumer.stdout is not None
        ended = threading.Event()

        def produce_until_consumed() -> None:
            while not ended.is_set():
                python("-c", produce)

        with ThreadPoolExecutor(1) as threads:
            producing = threads.submit(produce_until_consumed)
            line = consumer.stdout.readline()
            ended.set()
            producing.result()
        assert line.startswith("consumed:  my_topic 0 ")
    finally:
        consumer.send_signal(signal.SIGINT)
        consumer.communicate(timeout=30)


def test_faststream_example_that_is_stopped_while_it_starts_prints_no_traceback(bootstrap: str) -> None:
    pytest.importorskip("faststream", reason="FastStream is not installed")
    command = [sys.executable, str(ROOT / "examples" / "faststream_orders.py"), bootstrap]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert "waiting for messages" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    # FastStream ends with the signal itself if it was already shutting down.
    assert process.returncode in (0, 130, -signal.SIGINT), errors
    assert "Traceback" not in errors
