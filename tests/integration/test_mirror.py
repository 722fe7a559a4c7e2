"""A mirror between two brokers over real sockets, from Python and from the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

import triokafka
from tests.support.read_back import read_all
from tests.support.waiting import eventually
from triokafka.errors import ConfigurationError
from triokafka.mirror import Mirror, MirrorOptions
from triokafka.mirror.failover import read_checkpoints
from triokafka.mirror.lag import read_positions
from triokafka.security.acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    ResourceType,
)
from triokafka.structs import TopicPartition
from triokafka.testing import RunningBroker, running_broker

ALLOW = AclPermissionType.ALLOW
PATIENCE = 60
POSITIONS = TopicPartition("west.mirror-positions.internal", 0)


def options(west: RunningBroker, east: RunningBroker, **more: Any) -> MirrorOptions:
    return MirrorOptions(
        source={"bootstrap_servers": west.bootstrap_servers},
        target={"bootstrap_servers": east.bootstrap_servers},
        source_alias="west",
        target_alias="east",
        **more,
    )


async def mirror(west: RunningBroker, east: RunningBroker, **more: Any) -> Mirror:
    made = Mirror(options(west, east, **more))
    with trio.fail_after(PATIENCE):
        await made.run(until_caught_up=True)
    return made


async def write(
    broker: RunningBroker, topic: str, count: int, *, partitions: int = 2, first: int = 0, batch_size: int = 16_384
) -> None:
    async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        if topic not in {one.name for one in await admin.list_topics()}:
            await admin.create_topics([triokafka.NewTopic(topic, partitions, configs={"retention.ms": "777777000"})])
    async with triokafka.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=batch_size) as producer:
        for number in range(first, first + count):
            await producer.send(
                topic,
                b"%d" % number if number % 7 else None,
                key=None if number % 3 else b"k%d" % number,
                partition=number % partitions,
                headers=[("h", b"%d" % number), ("h", None)] if number % 5 else [],
                timestamp_ms=1_700_000_000_000 + number,
            )


async def records(broker: RunningBroker, topic: str, partition: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    at = TopicPartition(topic, partition)
    async with triokafka.Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        end = (await consumer.end_offsets([at]))[at]
        while await consumer.position(at) < end:
            for record in (await consumer.poll(timeout_ms=500)).get(at, ()):
                found.append((record.key, record.value, record.headers, record.timestamp))
    return found


async def configs(broker: RunningBroker, topic: str) -> dict[str, str | None]:
    resource = triokafka.ConfigResource.topic(topic)
    async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = (await admin.describe_configs([resource]))[resource]
        return {entry.name: entry.value for entry in found.values() if entry.source.name == "TOPIC"}


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_mirrored_records_are_equal_in_every_field(exactly_once: bool) -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 1_000)
        await mirror(west, east, exactly_once=exactly_once)
        for partition in range(2):
            assert await records(east, "west.orders", partition) == await records(west, "orders", partition)


async def test_second_run_continues_where_the_first_ended() -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 100)
        await mirror(west, east)
        await write(west, "orders", 50, first=100)
        again = await mirror(west, east)
        assert (await again.status()).records == 50
        assert sum(map(len, (await read_all(east.bootstrap_servers, {"west.orders": 2})).values())) == 150


async def test_topics_follow_new_partitions_and_configurations() -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 10)
        await mirror(west, east)
        assert await configs(east, "west.orders") == {
            "retention.ms": "777777000",
            "message.timestamp.type": "CreateTime",
        }
        async with triokafka.AdminClient(bootstrap_servers=west.bootstrap_servers) as admin:
            await admin.create_partitions({"orders": 3})
            await admin.incremental_alter_configs(
                {triokafka.ConfigResource.topic("orders"): {"retention.ms": None, "cleanup.policy": "compact"}}
            )
        await mirror(west, east)
        assert (await configs(east, "west.orders"))["cleanup.policy"] == "compact"
        assert "retention.ms" not in await configs(east, "west.orders")
        assert len(await records(east, "west.orders", 2)) == 0


async def test_two_flows_do_not_loop() -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 10)
        await write(east, "orders", 10)
        back = MirrorOptions(
            source={"bootstrap_servers": east.bootstrap_servers},
            target={"bootstrap_servers": west.bootstrap_servers},
            source_alias="east",
            target_alias="west",
        )
        for _ in range(2):
            await mirror(west, east)
            with trio.fail_after(PATIENCE):
                await Mirror(back).run(until_caught_up=True)
        for broker, own in ((west, "east"), (east, "west")):
            async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
                names = [one.name for one in await admin.list_topics() if "orders" in one.name]
            assert sorted(names) == sorted([f"{own}.orders", "orders"])


async def test_identity_policy_skips_topics_written_by_a_running_flow(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 10)
        back = MirrorOptions(
            source={"bootstrap_servers": east.bootstrap_servers},
            target={"bootstrap_servers": west.bootstrap_servers},
            source_alias="east",
            target_alias="west",
            naming="identity",
        )
        await mirror(west, east, naming="identity", heartbeat_interval_ms=1)
        async with trio.open_nursery() as nursery:
            running = Mirror(options(west, east, naming="identity", heartbeat_interval_ms=10))
            nursery.start_soon(running.run)
            beats = TopicPartition("heartbeats", 0)
            async with triokafka.Consumer(bootstrap_servers=east.bootstrap_servers) as consumer:
                consumer.assign([beats])
                consumer.seek_to_end(beats)
                await consumer.position(beats)
                with trio.fail_after(PATIENCE):
                    while not await consumer.poll(timeout_ms=500):
                        pass
            looped = Mirror(back)
            with trio.fail_after(PATIENCE):
                await looped.run(until_caught_up=True)
            assert "would loop" in (await looped.status()).left_out["orders"]
            nursery.cancel_scope.cancel()
        assert len(await records(west, "orders", 0)) == 5


@pytest.mark.parametrize(
    ("naming", "endless"),
    [
        ("prefix", "topic orders would be copied to west.orders, and"),
        ("identity", "topic orders would be copied to itself"),
    ],
)
async def test_copy_of_a_cluster_into_itself_without_end_is_refused(naming: Any, endless: str) -> None:
    async with running_broker() as west:
        await write(west, "orders", 10)
        with pytest.raises(ConfigurationError, match=f"source and target are the same cluster: {endless}"):
            await mirror(west, west, naming=naming)
        async with triokafka.AdminClient(bootstrap_servers=west.bootstrap_servers) as admin:
            assert [topic.name for topic in await admin.list_topics()] == ["orders"]


async def test_topic_is_copied_within_one_cluster_if_the_copy_is_left_out() -> None:
    async with running_broker() as west:
        await write(west, "orders", 10)
        await mirror(west, west, topics=("orders",))
        assert await records(west, "west.orders", 0) == await records(west, "orders", 0)


async def test_topic_that_was_recreated_starts_over(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 10, partitions=1)
        await mirror(west, east)
        await west.delete_topic("orders")
        await write(west, "orders", 4, partitions=1, first=100)
        await mirror(west, east)
        assert len(await records(east, "west.orders", 0)) == 14
        assert "recreated" in caplog.text


async def test_running_mirror_leaves_deleted_topics_deleted_and_copies_recreated_ones() -> None:
    async with running_broker() as west, running_broker() as east, trio.open_nursery() as nursery:
        await write(west, "orders", 10, partitions=1)
        await write(west, "payments", 5, partitions=1)
        running = Mirror(options(west, east, refresh_interval_ms=200))
        nursery.start_soon(running.run)

        async def copied(topic: str, count: int) -> bool:
            status = await running.status()
            return status.partitions >= 1 and len(await records(east, f"west.{topic}", 0)) == count

        await eventually(lambda: copied("orders", 10))
        await eventually(lambda: copied("payments", 5))
        await west.delete_topic("orders")
        await write(west, "more", 3, partitions=1)  # the mirror refreshes its topics and its metadata
        await eventually(lambda: copied("more", 3))
        async with triokafka.AdminClient(bootstrap_servers=west.bootstrap_servers) as admin:
            assert "orders" not in [topic.name for topic in await admin.list_topics()]
        await write(west, "orders", 4, partitions=1, first=100)
        await eventually(lambda: copied("orders", 14))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_recreated_topic_that_is_longer_than_the_old_one_is_copied_once(exactly_once: bool) -> None:
    """The mirror refreshes its topics every half minute; its consumer notices the new topic earlier."""
    async with running_broker() as west, running_broker() as east, trio.open_nursery() as nursery:
        await write(west, "orders", 10, partitions=1)
        west_options = {"bootstrap_servers": west.bootstrap_servers, "client_id": "the mirror"}
        running = Mirror(replace(options(west, east, exactly_once=exactly_once), source=west_options))
        nursery.start_soon(running.run)

        async def copied(numbers: list[bytes | None]) -> bool:
            return [value for _, value, _, _ in await records(east, "west.orders", 0)] == numbers

        def values(first: int, count: int) -> list[bytes | None]:
            return [b"%d" % number if number % 7 else None for number in range(first, first + count)]

        async with triokafka.AdminClient(bootstrap_servers=east.bootstrap_servers) as admin:

            async def created() -> bool:
                return "west.orders" in [topic.name for topic in await admin.list_topics()]

            await eventually(created)
        await eventually(lambda: copied(values(0, 10)))

        async def stored() -> bool:
            found = await read_positions({"bootstrap_servers": east.bootstrap_servers}, "west")
            return [position.next_offset for position in found.values()] == [10]

        await eventually(stored)
        west.delay_requests("ListOffsets", delay_ms=1_500, client_id="the mirror")  # the new topic grows meanwhile
        await west.delete_topic("orders")
        await write(west, "orders", 25, partitions=1, first=100)
        await eventually(lambda: copied(values(0, 10) + values(100, 25)))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def running_mirror(west: RunningBroker, east: RunningBroker, **more: Any) -> AsyncIterator[triokafka.AdminClient]:
    """Run a mirror that stores its progress often; yield an admin client of its target."""
    async with (
        trio.open_nursery() as nursery,
        triokafka.AdminClient(bootstrap_servers=east.bootstrap_servers) as admin,
    ):
        nursery.start_soon(Mirror(options(west, east, commit_interval_ms=100, **more)).run)
        yield admin
        nursery.cancel_scope.cancel()


async def end_of_positions(admin: triokafka.AdminClient) -> int:
    """Return the end offset of the progress topic; 0 if it does not exist."""
    found = await admin.list_offsets({POSITIONS: "latest"})
    return 0 if POSITIONS in found.errors else found[POSITIONS].offset


async def test_progress_that_is_deleted_while_the_mirror_runs_is_stored_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 10, partitions=1)
        async with running_mirror(west, east, refresh_interval_ms=200) as admin:

            async def stored() -> bool:
                return await end_of_positions(admin) > 0

            async def noticed() -> bool:
                return "was deleted: it is created again" in caplog.text

            await eventually(stored)
            await east.delete_topic(POSITIONS.topic)
            await eventually(noticed)
            await eventually(stored)
        again = await mirror(west, east)
        assert (await again.status()).records == 0
        assert "records are repeated" not in caplog.text
        await east.delete_topic(POSITIONS.topic)
        await mirror(west, east)
        assert "west.orders-0: the target has records" in caplog.text
        assert len(await records(east, "west.orders", 0)) == 20


async def test_progress_that_is_truncated_while_the_mirror_runs_is_stored_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """This holds also if the session fails before the mirror has written the progress again."""
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 10, partitions=1)
        async with running_mirror(west, east, refresh_interval_ms=200) as admin:
            truncated = 0

            async def stored() -> bool:
                return await end_of_positions(admin) > truncated

            await eventually(stored)
            policy = triokafka.ConfigResource.topic(POSITIONS.topic)
            await admin.incremental_alter_configs({policy: {"cleanup.policy": "compact,delete"}})
            truncated = await end_of_positions(admin)
            await admin.delete_records({POSITIONS: truncated})
            west.fail_next("Fetch", "UNKNOWN_SERVER_ERROR", topic="orders")
            await eventually(stored)
        assert "records before offset" in caplog.text
        again = await mirror(west, east)
        assert (await again.status()).records == 0
        assert "had cleanup.policy=compact,delete" in caplog.text
        assert (await configs(east, POSITIONS.topic))["cleanup.policy"] == "compact"
        assert len(await records(east, "west.orders", 0)) == 10


async def test_progress_topic_that_another_process_created_again_is_filled(caplog: pytest.LogCaptureFixture) -> None:
    """The process of one shard creates the deleted topic, and the others notice that it is not their own."""
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 10, partitions=1)
        async with running_mirror(west, east, refresh_interval_ms=1_000) as admin:

            async def stored() -> bool:
                return await end_of_positions(admin) > 0

            await eventually(stored)
            await east.delete_topic(POSITIONS.topic)
            await admin.create_topics([triokafka.NewTopic(POSITIONS.topic, 1, configs={"cleanup.policy": "compact"})])
            await eventually(lambda: "deleted" in caplog.text)
            await eventually(stored)
        assert (await (await mirror(west, east)).status()).records == 0


async def test_recreated_target_topic_is_reported_and_filled_from_there(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 10, partitions=1)
        await mirror(west, east)
        await east.delete_topic("west.orders")
        await write(west, "orders", 4, partitions=1, first=10)
        async with triokafka.Consumer(
            "orders", bootstrap_servers=west.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            read = 0
            while read < 12:
                read += sum(map(len, (await consumer.poll(timeout_ms=500, max_records=12 - read)).values()))
            await consumer.commit()
        again = await mirror(west, east)
        assert "was deleted and created again" in caplog.text
        assert (await again.status()).records == 4
        assert len(await records(east, "west.orders", 0)) == 4
        (checkpoint,) = await read_checkpoints({"bootstrap_servers": east.bootstrap_servers}, "west")
        assert (checkpoint.upstream_offset, checkpoint.offset) == (12, 2)


async def test_records_that_the_source_deleted_are_counted() -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 10, partitions=1)
        await mirror(west, east)
        await write(west, "orders", 10, partitions=1, first=10)
        async with triokafka.AdminClient(bootstrap_servers=west.bootstrap_servers) as admin:
            await admin.delete_records({TopicPartition("orders", 0): 15})
        again = await mirror(west, east)
        status = await again.status()
        assert (status.lost, status.records, status.lag) == (5, 5, 0)


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_records_that_the_source_deletes_under_a_running_mirror_are_counted_exactly(
    exactly_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With small fetches and one long transaction, records are deleted while others are being copied."""
    written, remaining = 3_000, 40
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", written, batch_size=200)
        running = Mirror(
            options(
                west, east, exactly_once=exactly_once, commit_interval_ms=1_500,
                consumer_options={"max_partition_fetch_bytes": 300, "fetch_max_bytes": 600},
            )
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.run)

            async def copying() -> bool:
                return (await running.status()).records > 20

            await eventually(copying)
            async with triokafka.AdminClient(bootstrap_servers=west.bootstrap_servers) as admin:
                await admin.delete_records({TopicPartition("orders", 1): written // 2 - remaining})

            async def finished() -> bool:
                return (await running.status()).lag == 0

            await eventually(finished)
            lost = (await running.status()).lost
            nursery.cancel_scope.cancel()
        with trio.fail_after(PATIENCE):
            await Mirror(options(west, east, exactly_once=exactly_once)).run(until_caught_up=True)
        whole = await read_all(east.bootstrap_servers, {"west.orders": 2}, isolation_level="read_committed")
        first, second = (whole[TopicPartition("west.orders", number)] for number in (0, 1))
        assert len(first) == written // 2
        assert len(second) + lost == written // 2
        assert not lost or f"orders-1: the source deleted {lost} offsets before they were mirrored" in caplog.text


async def test_topic_refused_by_the_target_does_not_delay_the_others() -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "good", 4)
        await write(west, "b" * 246, 4)
        made = await mirror(west, east)
        assert len(await records(east, "west.good", 0)) == 2
        (reason,) = (await made.status()).left_out.values()
        assert "max allowed length 249" in reason


async def test_second_process_of_an_exactly_once_flow_fences_the_first() -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 10)
        await mirror(west, east, exactly_once=True)
        fenced: list[Exception] = []

        async def run_first() -> None:
            try:
                await Mirror(options(west, east, exactly_once=True)).run()
            except triokafka.errors.ProducerFencedError as error:
                fenced.append(error)

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_first)
                arrived = TopicPartition("west.orders", 0)
                async with triokafka.Consumer(bootstrap_servers=east.bootstrap_servers) as consumer:
                    consumer.assign([arrived])
                    consumer.seek(arrived, 5)
                    await write(west, "orders", 10, first=10)
                    while not await consumer.poll(timeout_ms=500):
                        pass
                await mirror(west, east, exactly_once=True)
                await write(west, "orders", 10, first=20)
        assert fenced


# ------------------------------------------------------------------------------------------------ the command line


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "triokafka", "mirror", *words]


async def test_command_mirrors_shows_progress_and_applies_positions() -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 100)
        async with triokafka.AdminClient(bootstrap_servers=west.bootstrap_servers) as admin:
            await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 20})
        sides = ["--source", west.bootstrap_servers, "--target", east.bootstrap_servers]
        ran = await trio.run_process(
            command("run", *sides, "--once", "--json"), capture_stdout=True, capture_stderr=True
        )
        status = json.loads(ran.stdout.splitlines()[-1])
        assert (status["flow"], status["records"], status["lag"]) == ("source->target", 100, 0)
        shown = await trio.run_process(command("status", *sides), capture_stdout=True)
        assert re.findall(rb"orders +(\d) +(\d+) +(\d+) +(\d+)", shown.stdout) == [
            (b"0", b"50", b"50", b"0"),
            (b"1", b"50", b"50", b"0"),
        ]
        await trio.run_process(
            command("offsets", "--target", east.bootstrap_servers, "--group", "billing", "--apply"), capture_stdout=True
        )
        async with triokafka.AdminClient(bootstrap_servers=east.bootstrap_servers) as admin:
            found = await admin.list_group_offsets("billing")
        assert {partition: one.offset for partition, one in found.items()} == {TopicPartition("source.orders", 0): 20}


@pytest.mark.parametrize("words", [("status", "--source", "{}"), ("offsets",)])
async def test_command_explains_that_nothing_was_mirrored(words: tuple[str, ...]) -> None:
    async with running_broker() as broker:
        address = broker.bootstrap_servers
        shown = await trio.run_process(
            command(*(word.format(address) for word in words), "--target", address, "--source-alias", "wset"),
            capture_stdout=True,
            capture_stderr=True,
        )
    assert b"of the cluster wset. Check --source-alias" in shown.stderr
    assert shown.stdout == b""


async def test_command_ends_cleanly_on_a_signal(tmp_path: Path) -> None:
    async with running_broker() as west, running_broker() as east:
        await write(west, "orders", 100)
        file = tmp_path / "mm2.properties"
        file.write_text(
            f"clusters = west, east\nwest.bootstrap.servers = {west.bootstrap_servers}\n"
            f"east.bootstrap.servers = {east.bootstrap_servers}\nwest->east.enabled = true\n"
        )
        process = await trio.lowlevel.open_process(
            command("run", "--mm2-config", str(file), "--status-interval", "0.2"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            printed = b""
            with trio.fail_after(PATIENCE):
                while b"100 records" not in printed:
                    printed += await process.stdout.receive_some()
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
            assert b"Traceback" not in await process.stderr.receive_some()
        finally:
            process.kill()  # it has ended already unless the test failed
            await process.wait()


def test_commands_name_the_unreachable_cluster() -> None:
    done = subprocess.run(
        command("status", "--source", "127.0.0.1:1", "--target", "127.0.0.1:1", "--timeout", "300"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "could not connect to bootstrap server 127.0.0.1:1: Connection refused" in done.stderr
    assert done.stderr.endswith("--target names another one\n")

    process = subprocess.Popen(
        command("run", "--source", "127.0.0.1:1", "--target", "127.0.0.1:1", "--once"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline().startswith("triokafka: source->target: target: could not connect")
    process.send_signal(signal.SIGINT)
    _, error_output = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error_output.splitlines()[-1]) == (
        130,
        "triokafka: stopped before everything was mirrored",
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["run"], "Give the brokers of the source"),
        (["run", "--source", "a:1"], "Give the brokers of the target"),
        (["run", "--source", "a:1", "--target", "b:1", "--shard", "3/2"], "is not N/COUNT"),
        (["run", "--source", "a:1", "--target", "b:1", "--topics", "("], "is not a regular expression"),
        (["run", "--source", "a:1", "--target", "b:1", "--target-alias", "source"], "both 'source'"),
        (["run", "--mm2-config", "/nowhere"], "/nowhere cannot be read"),
        (["offsets"], "Give the brokers of the target"),
    ],
)
def test_wrong_use_of_the_mirror_is_one_error_line(words: list[str], problem: str) -> None:
    ran = subprocess.run(command(*words), capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert problem in ran.stderr
    assert "Traceback" not in ran.stderr


async def test_acls_of_topics_are_copied_once_both_clusters_have_an_authorizer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    authorizer: dict[str, Any] = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
    async with running_broker(**authorizer) as west, running_broker(**authorizer) as east:
        await write(west, "orders", 1)
        read, write_too, all_for_bob = (
            AclBinding(ResourceType.TOPIC, "orders", AclPatternType.LITERAL, principal, "*", operation, ALLOW)
            for principal, operation in (
                ("User:alice", AclOperation.READ),
                ("User:alice", AclOperation.WRITE),
                ("User:bob", AclOperation.ALL),
            )
        )
        async with triokafka.AdminClient(bootstrap_servers=west.bootstrap_servers) as admin:
            await admin.create_acls([read, write_too, all_for_bob])
        for _ in range(2):  # the second time, all of them exist
            await mirror(west, east, sync_topic_acls=True)
        async with triokafka.AdminClient(bootstrap_servers=east.bootstrap_servers) as admin:
            found = set(await admin.describe_acls(AclBindingFilter(ResourceType.TOPIC)))
        assert found == {
            read._replace(resource_name="west.orders"),
            all_for_bob._replace(resource_name="west.orders", operation=AclOperation.READ),
        }
        assert "not copied" not in caplog.text
        async with running_broker() as plain:
            await mirror(west, plain, sync_topic_acls=True)
        assert "the ACLs of topics are not copied: cluster east" in caplog.text
