"""The pytest plugin as users run it: in a separate run of pytest, alone and with four workers of xdist."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

_CLIENTS = """
import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

NUMBERS = range(2)


@pytest.mark.parametrize("number", NUMBERS)
def test_confluent_kafka(kafka_broker, kafka_topic, number):
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce(kafka_topic, b"%d" % number)
    assert producer.flush(10) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "group.id": kafka_topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([kafka_topic])
    message = consumer.poll(10)
    assert (message.offset(), message.value()) == (0, b"%d" % number)
    consumer.close()


@pytest.mark.parametrize("number", NUMBERS)
def test_aiokafka(kafka_broker, kafka_topic, number):
    async def main():
        servers = kafka_broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait(kafka_topic, b"%d" % number)
        async with AIOKafkaConsumer(
            kafka_topic, bootstrap_servers=servers, auto_offset_reset="earliest", group_id=kafka_topic
        ) as consumer:
            record = await consumer.getone()
        assert (record.offset, record.value) == (0, b"%d" % number)

    asyncio.run(main())


@pytest.mark.parametrize("number", NUMBERS)
async def test_trio(kafka_producer, kafka_consumer, kafka_topic, number):
    await (await kafka_producer.send(kafka_topic, b"%d" % number))
    async for record in kafka_consumer:
        assert (record.offset, record.value) == (0, b"%d" % number)
        break


@pytest.mark.parametrize("number", NUMBERS)
def test_plain(kafka_producer, kafka_consumer, kafka_topic, number):
    kafka_producer.send(kafka_topic, b"%d" % number).get(timeout=10)
    record = next(kafka_consumer)
    assert (record.offset, record.value) == (0, b"%d" % number)
"""


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory for test files."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    pytester.makeini("[pytest]\ntrio_mode = true\naddopts = -p no:cacheprovider\n")
    return pytester


def run(runs: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """One run of pytest in a process of its own."""
    installed = entry_points(group="pytest11", name="triokafka")
    plugin = () if installed else ("-p", "triokafka.testing.plugin")  # a checkout alone has no entry points
    return runs.runpytest_subprocess(*plugin, *arguments, timeout=270)


def test_any_client_in_four_workers(runs: pytest.Pytester) -> None:
    runs.makepyfile(_CLIENTS)
    result = run(runs, "-n", "4")
    result.assert_outcomes(passed=8)


def test_faults_end_with_the_test(runs: pytest.Pytester) -> None:
    runs.makepyfile(
        """
        import pytest

        def test_faults_are_left_on(kafka_broker, kafka_topic, kafka_producer):
            kafka_broker.close_on("Produce", times=-1)
            kafka_broker.fill_disk()
            kafka_broker.freeze()

        def test_they_are_off(kafka_broker, kafka_topic):
            assert not kafka_broker.faults.armed
            kafka_broker.fill_disk()
            kafka_broker.stop(clean=False)

        async def test_it_runs_again(kafka_broker, kafka_topic, kafka_producer):
            assert kafka_broker.is_running
            await (await kafka_producer.send(kafka_topic, b"1"))
            kafka_broker.delete_topic(kafka_topic)

        def test_it_fails(kafka_broker, kafka_topic):
            kafka_broker.freeze()
            raise AssertionError("as it should")

        def test_after_a_failure(kafka_broker, kafka_topic):
            kafka_broker.restart()
        """
    )
    result = run(runs)
    result.assert_outcomes(passed=4, failed=1)


def test_topics_are_as_the_marker_says_and_gone_after_the_test(runs: pytest.Pytester) -> None:
    runs.makepyfile(
        """
        import pytest
        from confluent_kafka.admin import AdminClient, ConfigResource

        topics = []

        @pytest.mark.kafka_topic(partitions=3, configs={"cleanup.policy": "compact"})
        def test_marked(kafka_broker, kafka_topic):
            admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
            assert len(admin.list_topics(kafka_topic, timeout=10).topics[kafka_topic].partitions) == 3
            resource = ConfigResource(ConfigResource.Type.TOPIC, kafka_topic)
            (found,) = admin.describe_configs([resource]).values()
            assert found.result(10)["cleanup.policy"].value == "compact"
            topics.append(kafka_topic)

        @pytest.mark.parametrize("text", ["ä ö/ü", "x" * 300])
        def test_names(kafka_topic, text):
            topics.append(kafka_topic)

        def test_gone(kafka_broker):
            admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
            assert len(set(topics)) == 3
            assert not set(topics) & set(admin.list_topics(timeout=10).topics)
        """
    )
    run(runs, "--strict-markers").assert_outcomes(passed=4)


def test_options_and_scope_are_the_users(runs: pytest.Pytester) -> None:
    runs.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def kafka_broker_options():
            return {"num_partitions": 5}
        """
    )
    source = """
        import pytest
        from confluent_kafka.admin import AdminClient

        seen = set()

        @pytest.mark.parametrize("number", range(2))
        def test_options(kafka_broker, triokafka_broker, number):
            assert triokafka_broker is kafka_broker
            kafka_broker.create_topic("t%d" % number)
            admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
            assert len(admin.list_topics("t%d" % number, timeout=10).topics["t%d" % number].partitions) == 5
            seen.add(id(kafka_broker))
    """
    runs.makepyfile(test_one=source + "\n        def test_shared():\n            assert len(seen) == 1\n")
    run(runs).assert_outcomes(passed=3)
    assert run(runs, "-o", "kafka_broker_scope=century").ret != 0


def test_nothing_is_imported_until_a_test_requests_it(runs: pytest.Pytester) -> None:
    runs.makepyfile(
        """
        import sys

        def test_imports():
            assert "triokafka.testing.plugin" in sys.modules
            ours = {name for name in sys.modules if name.startswith("triokafka")}
            assert ours == {"triokafka", "triokafka.testing", "triokafka.testing.plugin"}
        """
    )
    run(runs).assert_outcomes(passed=1)


@pytest.fixture
def plain(runs: pytest.Pytester) -> pytest.Pytester:
    """A directory whose configuration does not mention Trio, as a newcomer has it."""
    runs.makeini("[pytest]\naddopts = -p no:cacheprovider\n")
    return runs


_ASYNC_TESTS = """
import {module}


async def test_sleeps():
    import trio
    await trio.sleep(0)
"""


def test_async_tests_for_trio_run_without_configuration(plain: pytest.Pytester) -> None:
    modules = ("trio", "triokafka", "triokafka.testing as testing")
    sources = {f"test_{number}": _ASYNC_TESTS.format(module=module) for number, module in enumerate(modules)}
    plain.makepyfile(
        **sources,
        test_fixtures="""
        async def test_roundtrip(kafka_producer, kafka_consumer, kafka_topic):
            await (await kafka_producer.send(kafka_topic, b"two coffees"))
            async for record in kafka_consumer:
                assert record.value == b"two coffees"
                break
        """,
    )
    run(plain).assert_outcomes(passed=4)


_RUN_BY_ASYNCIO = """
import asyncio
import pytest

def pytest_addoption(parser):
    parser.addini("asyncio_mode", "as pytest-asyncio has it", default="strict")

def pytest_configure(config):
    config.addinivalue_line("markers", "asyncio: as pytest-asyncio has it")

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    marked = pyfuncitem.get_closest_marker("asyncio") or pyfuncitem.config.getini("asyncio_mode") == "auto"
    if marked and not pyfuncitem.get_closest_marker("trio"):
        asyncio.run(pyfuncitem.obj())
        return True
"""


def test_async_tests_that_another_plugin_runs_stay_its_own(plain: pytest.Pytester) -> None:
    plain.makeconftest(_RUN_BY_ASYNCIO)
    plain.makepyfile(
        test_marked="""
        import pytest
        import triokafka

        @pytest.mark.asyncio
        async def test_marked():
            import asyncio
            asyncio.get_running_loop()
        """
    )
    run(plain, "-p", "no:asyncio").assert_outcomes(passed=1)  # the stand-in alone, without pytest-asyncio
    plain.makepyfile(
        test_unmarked="""
        import triokafka

        async def test_unmarked():
            import asyncio
            asyncio.get_running_loop()
        """
    )
    run(plain, "-p", "no:asyncio", "-o", "asyncio_mode=auto").assert_outcomes(passed=2)


def test_async_test_of_a_module_that_imports_asyncio_is_left_alone(plain: pytest.Pytester) -> None:
    plain.makepyfile("import asyncio, triokafka\n\nasync def test_one():\n    pass\n")
    run(plain).assert_outcomes(failed=1)


def test_marking_async_tests_can_be_switched_off(plain: pytest.Pytester) -> None:
    plain.makepyfile(_ASYNC_TESTS.format(module="triokafka"))
    run(plain, "-o", "kafka_trio_tests=false").assert_outcomes(failed=1)
