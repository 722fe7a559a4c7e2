"""`start` connects and logs in, or raises and leaks nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import pytest
import uvloop

from tests.integration.test_asyncio_leaks import settle_to, settled
from tests.support.asyncio_programs import PATIENCE, run, until
from triokafka.asyncio import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from triokafka.asyncio.admin import AIOKafkaAdminClient
from triokafka.asyncio.errors import (
    KafkaConnectionError,
    NoOffsetForPartitionError,
    SaslAuthenticationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartitionError,
)
from triokafka.errors import SecurityProtocolMismatchError, TlsAuthenticationError
from triokafka.testing.blocking import BlockingBroker, running_broker

PROMPTLY = 15.0
"""Seconds within which a refusal must reach the program, on a busy machine."""

CLIENTS: dict[str, Callable[..., Any]] = {
    "producer": AIOKafkaProducer,
    "transactional producer": lambda **options: AIOKafkaProducer(transactional_id="orders", **options),
    "consumer": AIOKafkaConsumer,
    "consumer of a topic": lambda **options: AIOKafkaConsumer("orders", group_id="cooks", **options),
    "admin": AIOKafkaAdminClient,
}


@pytest.fixture(params=list(CLIENTS))
def new_client(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return the constructor of a client."""
    return CLIENTS[request.param]


async def end(client: Any) -> None:
    """Stop a client."""
    await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def refused(new_client: Callable[..., Any], options: dict[str, Any]) -> KafkaConnectionError:
    """Start a client twice, which fails; return the error. Checks that nothing leaks."""
    before = settled()
    client = new_client(**options)
    for _ in range(2):
        async with asyncio.timeout(PROMPTLY):
            with pytest.raises(KafkaConnectionError, match="Unable to bootstrap from") as caught:
                await client.start()
        await settle_to(before)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await end(client)
    if not isinstance(client, AIOKafkaAdminClient):
        with pytest.raises(KafkaConnectionError):
            async with new_client(**options):
                raise AssertionError("the client has started")
    await settle_to(before)
    return caught.value


class SilentServer:
    """A server that accepts connections and never answers."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.address = "{}:{}".format(*listener.getsockname())

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[None]:
        """Wait until a client has sent a request; keep its connection open within the block."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE):
            connection, _ = await loop.sock_accept(self._listener)
            with connection:
                assert await loop.sock_recv(connection, 1)
                yield


@contextmanager
def silent_server() -> Iterator[SilentServer]:
    """Run such a server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield SilentServer(listener)


@contextmanager
def unused_address() -> Iterator[str]:
    """Yield an address without a listener."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield "{}:{}".format(*unused.getsockname())


def test_start_without_a_broker_raises(new_client: Callable[..., Any]) -> None:
    with unused_address() as first, unused_address() as second:
        error = run(refused(new_client, {"bootstrap_servers": [first, second]}))
        assert first in str(error)
        assert second in str(error)


def test_start_at_a_silent_server_raises(new_client: Callable[..., Any]) -> None:
    with silent_server() as server:
        run(refused(new_client, {"bootstrap_servers": server.address, "request_timeout_ms": 100}))


def test_start_takes_another_broker_that_accepts(bootstrap: str) -> None:
    async def program(servers: list[str]) -> None:
        client = CLIENTS["producer"](bootstrap_servers=servers)
        await client.start()
        await end(client)

    with unused_address() as address:
        run(program([address, bootstrap]))
        run(program([bootstrap, address]))


@pytest.fixture(scope="module")
def secured() -> Iterator[BlockingBroker]:
    """A broker with TLS and a user."""
    with running_broker(tls=True, users={"alice": "secret"}, auto_create_topics_enable=True) as broker:
        yield broker


def secured_options(broker: BlockingBroker) -> dict[str, Any]:
    """Return options that the broker accepts."""
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cadata=broker.client_options()["ssl_cafile"]),
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }


@pytest.mark.parametrize(
    ("differs", "cause"),
    [
        ({"sasl_plain_password": "guess"}, SaslAuthenticationFailed),
        ({"sasl_mechanism": "PLAIN", "sasl_plain_password": "guess"}, SaslAuthenticationFailed),
        ({"ssl_context": ssl.create_default_context()}, TlsAuthenticationError),
        ({"security_protocol": "SASL_PLAINTEXT"}, SecurityProtocolMismatchError),
    ],
    ids=["password", "password of PLAIN", "certificate", "no TLS"],
)
def test_start_that_a_broker_refuses_raises(
    secured: BlockingBroker, differs: dict[str, Any], cause: type[Exception]
) -> None:
    error = run(refused(AIOKafkaProducer, secured_options(secured) | differs))
    assert isinstance(error.__cause__, cause)


def test_start_with_a_wrong_password_raises(secured: BlockingBroker, new_client: Callable[..., Any]) -> None:
    error = run(refused(new_client, secured_options(secured) | {"sasl_plain_password": "guess"}))
    assert isinstance(error.__cause__, SaslAuthenticationFailed)


def test_start_without_a_login_raises() -> None:
    with running_broker(users={"alice": "secret"}) as broker:
        for kind in (AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient):
            error = run(refused(kind, {"bootstrap_servers": broker.bootstrap_servers}))
            assert isinstance(error.__cause__, SecurityProtocolMismatchError)


@pytest.mark.parametrize("kind", ["producer", "consumer of a topic", "admin"])
def test_start_may_be_called_again_after_a_failure(kind: str) -> None:
    async def program(broker: BlockingBroker) -> None:
        client = CLIENTS[kind](bootstrap_servers=broker.bootstrap_servers)
        await asyncio.to_thread(broker.stop)
        with pytest.raises(KafkaConnectionError):
            await client.start()
        await asyncio.to_thread(broker.start)
        await client.start()
        if isinstance(client, AIOKafkaConsumer):
            assert "orders" in await client.topics()
        await end(client)

    with running_broker(auto_create_topics_enable=True) as broker:
        broker.create_topic("orders")
        run(program(broker))


def test_start_may_be_cancelled_and_stopped_while_it_connects(new_client: Callable[..., Any]) -> None:
    async def program(server: SilentServer) -> None:
        before = settled()
        client = new_client(bootstrap_servers=server.address)
        starting = asyncio.create_task(client.start())
        async with server.asked():
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        await settle_to(before)
        starting = asyncio.create_task(client.start())
        async with server.asked():
            async with asyncio.timeout(PROMPTLY):
                await end(client)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        await settle_to(before)

    with silent_server() as server:
        run(program(server))


def test_start_of_a_transactional_producer_that_may_not_use_its_id_raises() -> None:
    async def program(servers: str) -> None:
        before = settled()
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="orders")
        with pytest.raises(TransactionalIdAuthorizationFailed):
            await producer.start()
        await settle_to(before)
        await producer.start()
        await producer.stop()
        await settle_to(before)

    with running_broker() as broker:
        broker.fail_next("InitProducerId", TransactionalIdAuthorizationFailed)
        run(program(broker.bootstrap_servers))


def test_start_of_a_consumer_waits_for_its_topic(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic) as consumer:
            assert consumer.assignment(), "the broker has created the topic"
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
                await producer.send_and_wait(topic, b"after the start")
            record = await asyncio.wait_for(consumer.getone(), 30)
            assert record.value == b"after the start"

    run(program())


@pytest.mark.parametrize("how", ["assigned", "without a group", "in a group"])
def test_started_consumer_gets_what_is_sent_next(bootstrap: str, topic: str, how: str) -> None:
    """Although it begins at the end, and the producer needs only one request, and the consumer up to three."""

    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(3):
                name = f"{topic}-{number}"
                await producer.send_and_wait(name, b"before the start", partition=0)
                topics = () if how == "assigned" else (name,)
                group = name if how == "in a group" else None
                consumer = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group)
                if how == "assigned":
                    consumer.assign([TopicPartition(name, 0)])
                async with consumer:
                    await producer.send_and_wait(name, b"after the start", partition=0)
                    assert (await asyncio.wait_for(consumer.getone(), 60)).offset == 1

    run(program())


@pytest.mark.parametrize("by_hand", [False, True])
def test_start_of_a_consumer_whose_topic_does_not_exist_raises(by_hand: bool) -> None:
    async def program(servers: str) -> None:
        before = settled()
        topics = () if by_hand else ("missing",)
        consumer = AIOKafkaConsumer(*topics, bootstrap_servers=servers, group_id="cooks", request_timeout_ms=300)
        if by_hand:
            consumer.assign([TopicPartition("missing", 0)])
        with pytest.raises(UnknownTopicOrPartitionError, match="missing"):
            await consumer.start()
        await settle_to(before)
        await consumer.stop()

    with running_broker(auto_create_topics_enable=False) as broker:
        run(program(broker.bootstrap_servers))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_start_of_a_consumer_with_a_pattern_waits_for_the_assignment(
    bootstrap: str, topic: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"x")
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=topic)
        consumer.subscribe(pattern=f"^{topic}$")
        await consumer.start()
        assert {partition.topic for partition in consumer.assignment()} == {topic}
        await consumer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=f"{topic}-none")
        consumer.subscribe(pattern=f"^{topic}-none$")
        await consumer.start()
        assert not consumer.assignment()
        await consumer.stop()

    run(program(), loop=loop)


def test_idle_consumer_leaves_its_group_after_max_poll_interval_ms(bootstrap: str, topic: str) -> None:
    def consumer(**options: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, heartbeat_interval_ms=100, **options
        )

    async def program() -> None:
        async with consumer(max_poll_interval_ms=700, session_timeout_ms=45_000) as idle:
            assert idle.assignment()
            begun = asyncio.get_running_loop().time()
            async with consumer() as other:
                while other.assignment() != {TopicPartition(topic, 0)}:
                    await other.getmany(timeout_ms=50)
                assert asyncio.get_running_loop().time() - begun < 30, "the member stayed until its session timeout"
                async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
                    await producer.send_and_wait(topic, b"x")
            record = await asyncio.wait_for(idle.getone(), 30)
            assert record.value == b"x"

    run(program())


@pytest.mark.parametrize("reset", ["none", "earliest"])
def test_warning_about_an_idle_program_names_its_own_max_poll_interval_ms(
    topic: str, reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also while an error waits for the program, a member stays in its group for that long."""

    async def program(broker: BlockingBroker) -> None:
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id="cooks",
            auto_offset_reset=reset,
            max_poll_interval_ms=1500,
            rebalance_timeout_ms=300,
        ) as consumer:
            asked_at = time.monotonic()
            await until(lambda: not broker.members("cooks"))
            assert time.monotonic() - asked_at > 1.2
            with pytest.raises(NoOffsetForPartitionError) if reset == "none" else nullcontext():
                await consumer.getmany()

    with running_broker(auto_create_topics_enable=True) as broker:
        run(program(broker))
    (warning,) = (line for line in caplog.messages if "the program asked for no records" in line)
    assert "max_poll_interval_ms=1500," in warning


_LOADS = """
import asyncio, sys
from triokafka.asyncio import AIOKafkaProducer

async def main(servers, topic):
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    before = set(sys.modules)
    await producer.start()
    await producer.send_and_wait(topic, b"x")
    await producer.stop()
    print(*sorted(set(sys.modules) - before - {"encodings.idna", "stringprep"}))

asyncio.run(main(*sys.argv[1:]))
"""


def test_first_producer_keeps_the_running_loop_from_no_work_by_imports(bootstrap: str, topic: str) -> None:
    command = [sys.executable, "-c", _LOADS, bootstrap, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert not done.stdout.split()
