"""The pytest plugin: a broker, a topic, a producer and a consumer for tests with any client.

=====================  ========  =======================================================================================
``kafka_broker``       session   a running broker (`BlockingBroker`); its faults are switched off after each test
``kafka_topic``        test      the name of a new topic, which is gone after the test
``kafka_producer``     test      a producer for that broker
``kafka_consumer``     test      a consumer that reads ``kafka_topic`` from its beginning, in a group of its own
=====================  ========  =======================================================================================

The broker runs in a thread with its own Trio run, so that plain, asyncio and Trio tests can use it. Every worker of
pytest-xdist has a broker of its own. Nothing is imported until a test requests a fixture.

In a Trio test (one that pytest-trio runs), producer and consumer are `triokafka.Producer` and `triokafka.Consumer`,
entered already; in any other they are `triokafka.blocking`'s.

The plugin marks an ``async def`` test as a Trio test if its module imports trio or triokafka, or if it requests
``kafka_producer`` or ``kafka_consumer``. It does not mark a test that another marker or plugin claims, or a module that
imports asyncio, anyio, aiokafka or twisted. ``kafka_trio_tests = false`` in the configuration of pytest disables this.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib import import_module
from inspect import iscoroutinefunction
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from triokafka import Consumer, Producer
    from triokafka.testing.blocking import BlockingBroker

_SCOPES: Final = ("session", "package", "module", "class", "function")
_TRIO: Final = frozenset({"trio", "triokafka"})
_OTHER_LOOPS: Final = frozenset({"asyncio", "anyio", "aiokafka", "twisted", "tornado"})
_OTHER_MARKERS: Final = ("asyncio", "anyio", "asyncio_cooperative", "gen_test", "curio")
_numbers = itertools.count(1)
_brokers: list[BlockingBroker] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """``kafka_broker_scope``: the scope of the fixture ``kafka_broker``."""
    parser.addini(
        "kafka_broker_scope",
        "For how long tests share the broker of the fixture kafka_broker: " + ", ".join(_SCOPES),
        default="session",
    )
    parser.addini(
        "kafka_trio_tests",
        "Run async tests that use trio or triokafka, and that no other plugin runs, under Trio",
        type="bool",
        default=True,
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker with the properties of ``kafka_topic``."""
    config.addinivalue_line(
        "markers",
        "kafka_topic(partitions=1, configs={}): partition count of the topic in the fixture kafka_topic, and its "
        "configuration by Kafka's names",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark an async test for pytest-trio when it is written for Trio and no other plugin runs it."""
    if isinstance(item, pytest.Function) and _is_unclaimed_trio_test(item):
        item.add_marker("trio")


def _is_unclaimed_trio_test(item: pytest.Function) -> bool:
    config = item.config
    if not config.pluginmanager.hasplugin("trio") or not config.getini("kafka_trio_tests"):
        return False
    function = getattr(getattr(item.obj, "hypothesis", None), "inner_test", item.obj)
    if not iscoroutinefunction(function):
        return False
    if any(item.get_closest_marker(name) for name in ("trio", *_OTHER_MARKERS)) or "anyio_backend" in item.fixturenames:
        return False
    if "auto" in (_setting(config, "asyncio_mode"), _setting(config, "anyio_mode")):
        return False
    imported = _imported_packages(item.module)
    if imported & _OTHER_LOOPS:
        return False
    return bool(imported & _TRIO) or not {"kafka_producer", "kafka_consumer"}.isdisjoint(item.fixturenames)


def _setting(config: pytest.Config, name: str) -> str:
    """Return an option of another plugin, from the command line or the configuration file; empty without the plugin."""
    try:
        return str(config.getoption(name, None) or config.getini(name)).lower()
    except (KeyError, ValueError):
        return ""


def _imported_packages(module: ModuleType) -> set[str]:
    """Return the top-level packages of the modules, classes and functions that are names of a module."""
    found = set()
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str):
            found.add(name.partition(".")[0])
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Switch off the test's faults at its end, so that its clients close against a working broker."""
    for broker in _brokers:
        _heal(broker)


def _heal(broker: BlockingBroker) -> None:
    broker.reset()  # first: the broker cannot start on a full disk
    if not broker.is_running:
        broker.start()


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    scope = str(config.getini("kafka_broker_scope"))
    if scope not in _SCOPES:
        raise pytest.UsageError(f"kafka_broker_scope = {scope}: must be one of {', '.join(_SCOPES)}")
    return scope


@pytest.fixture(scope="session")
def kafka_broker_options() -> Mapping[str, Any]:
    """Options of the broker, by Kafka's names in snake_case; override it in a ``conftest.py``."""
    return {}


@pytest.fixture(scope=_scope)
def kafka_broker(kafka_broker_options: Mapping[str, Any]) -> Iterator[BlockingBroker]:
    """A running broker: ``kafka_broker.bootstrap_servers`` is its address, and its methods inject faults.

    It is shared by the whole session, or by the scope in the option ``kafka_broker_scope``. After each test its faults
    are switched off, and it is started again if it was stopped.
    """
    from triokafka.testing.blocking import running_broker

    with running_broker(**kafka_broker_options) as broker:
        _brokers.append(broker)
        try:
            yield broker
        finally:
            _brokers.remove(broker)


@pytest.fixture(scope=_scope)
def triokafka_broker(kafka_broker: BlockingBroker) -> BlockingBroker:
    """``kafka_broker`` by its earlier name."""
    return kafka_broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: BlockingBroker) -> Iterator[str]:
    """The name of a topic of this test: with one partition, or as ``pytest.mark.kafka_topic`` configures it."""
    marker = request.node.get_closest_marker("kafka_topic")
    options: dict[str, Any] = {"partitions": 1, **(marker.kwargs if marker is not None else {})}
    name = _unique(request.node.name)
    kafka_broker.create_topic(name, **options)
    yield name
    from triokafka.errors import UnknownTopicOrPartitionError

    try:
        kafka_broker.delete_topic(name)
    except UnknownTopicOrPartitionError:
        pass  # the test has deleted it


@pytest.fixture
def kafka_producer(request: pytest.FixtureRequest, kafka_broker: BlockingBroker) -> Any:
    """A producer for ``kafka_broker``, closed after the test.

    In a Trio test a `triokafka.Producer`, else a `triokafka.blocking.KafkaProducer`.
    """
    return request.getfixturevalue(f"_kafka_{_kind(request)}_producer")


@pytest.fixture
def kafka_consumer(request: pytest.FixtureRequest, kafka_topic: str) -> Any:
    """A consumer of ``kafka_topic`` from its beginning, in a group of its own, closed after the test.

    In a Trio test a `triokafka.Consumer`, else a `triokafka.blocking.KafkaConsumer`.
    """
    return request.getfixturevalue(f"_kafka_{_kind(request)}_consumer")


def _kind(request: pytest.FixtureRequest) -> str:
    return "blocking" if request.node.get_closest_marker("trio") is None else "trio"


def _unique(name: str) -> str:
    """Return a topic or group name that contains the test's name and is unique among all processes."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:150].strip("-.")
    return f"{plain}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def _kafka_blocking_producer(kafka_broker: BlockingBroker) -> Iterator[Any]:
    producer = import_module("triokafka.blocking").KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)
    yield producer
    producer.close()


@pytest.fixture
def _kafka_blocking_consumer(kafka_broker: BlockingBroker, kafka_topic: str) -> Iterator[Any]:
    consumer = import_module("triokafka.blocking").KafkaConsumer(
        kafka_topic,
        bootstrap_servers=kafka_broker.bootstrap_servers,
        group_id=f"{kafka_topic}-group",
        auto_offset_reset="earliest",
    )
    yield consumer
    consumer.close()


async def _trio_producer(kafka_broker: BlockingBroker) -> AsyncIterator[Producer]:
    from triokafka import Producer

    async with Producer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
        yield producer
        _heal(kafka_broker)  # pytest-trio closes its fixtures before it reports the test's end


async def _trio_consumer(kafka_broker: BlockingBroker, kafka_topic: str) -> AsyncIterator[Consumer]:
    from triokafka import Consumer

    async with Consumer(
        kafka_topic,
        bootstrap_servers=kafka_broker.bootstrap_servers,
        group_id=f"{kafka_topic}-group",
        auto_offset_reset="earliest",
    ) as consumer:
        yield consumer
        _heal(kafka_broker)


try:
    from pytest_trio import trio_fixture  # type: ignore[import-untyped]
except ImportError:  # without it there are no Trio tests that could ask for them
    pass
else:
    _kafka_trio_producer = trio_fixture(_trio_producer)
    _kafka_trio_consumer = trio_fixture(_trio_consumer)
