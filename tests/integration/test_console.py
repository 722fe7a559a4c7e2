"""The console over HTTP: the data of its page, its actions, and the requests that it refuses."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import triokafka
from triokafka.console import ConsoleOptions, console_app
from triokafka.console.limits import ConsoleLimits
from triokafka.errors import ConfigurationError
from triokafka.structs import TopicPartition
from triokafka.testing import RunningBroker, running_broker, running_cluster
from triokafka.world.system import RealWorld

PATIENCE = 60
HOST = "console.test"


class Page:
    """A browser's view of the console."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.token = ""

    async def load(self) -> dict[str, Any]:
        """Load the page itself and its token."""
        response = await self.client.get("/", headers={"Host": HOST})
        text = await response.get_data(as_text=True)
        found = re.search(r'data-facts="([^"]*)"', text)
        assert found
        facts: dict[str, Any] = json.loads(found[1].replace("&quot;", '"').replace("&amp;", "&"))
        self.token = facts["token"]
        return facts

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        response = await self.client.get(path, headers={"Host": HOST, **headers})
        return response.status_code, json.loads(await response.get_data(as_text=True))

    async def until(self, path: str) -> Any:
        """Repeat a GET until its response has no error."""
        while True:
            status, found = await self.get(path)
            if status == 200 and "error" not in found:
                return found
            await trio.sleep(0.1)

    async def post(self, path: str, document: Any, **headers: str) -> tuple[int, Any]:
        given = {"Host": HOST, "X-Console-Token": self.token, **headers}
        response = await self.client.post(path, json=document, headers=given)
        return response.status_code, json.loads(await response.get_data(as_text=True))

    async def change(self, name: str, /, **document: Any) -> Any:
        status, found = await self.post(f"/api/change/{name}", document)
        assert status == 200, found
        return found


@asynccontextmanager
async def console(client: dict[str, Any], **options: Any) -> AsyncIterator[Page]:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            made = ConsoleOptions(client=client, hosts=frozenset({HOST}), **options)
            page = Page(console_app(made, RealWorld(), nursery).test_client())
            await page.load()
            yield page
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def console_of_a_broker(**options: Any) -> AsyncIterator[tuple[RunningBroker, Page]]:
    async with running_broker() as broker:
        async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.create_topics([triokafka.NewTopic("orders", 2), triokafka.NewTopic("payments", 1)])
        async with triokafka.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(20):
                await producer.send(
                    "orders",
                    b'{"id": %d}' % number,
                    key=b"table %d" % (number % 3),
                    partition=number % 2,
                    timestamp_ms=1_000_000 + number,
                    headers=[("till", b"a")] if number < 5 else [],
                )
        async with console({"bootstrap_servers": broker.bootstrap_servers}, **options) as page:
            yield broker, page


async def test_overview_topics_and_partitions() -> None:
    async with console_of_a_broker() as (_, page):
        _, overview = await page.get("/api/overview")
        assert (overview["topics"], overview["partitions"], overview["under_replicated"]) == (2, 3, 0)
        _, topics = await page.get("/api/topics?text=ord")
        assert [one["name"] for one in topics["topics"]] == ["orders"]
        assert (await page.get("/api/topics?problems=1"))[1]["count"] == 0
        _, topic = await page.get("/api/topics/orders")
        assert [(one["start"], one["end"]) for one in topic["partitions"]] == [(0, 10), (0, 10)]
        assert all(one["size"] > 0 for one in topic["partitions"])
        assert any(one["name"] == "retention.ms" for one in topic["configs"])


async def test_broker_that_failed_is_shown_as_not_in_service() -> None:
    async with running_cluster(nodes=3) as cluster:
        await cluster.stop(3)
        async with console({"bootstrap_servers": cluster.bootstrap_servers}) as page:
            _, overview = await page.get("/api/overview")
            assert overview["cluster"]["fenced"] == [3]
            _, brokers = await page.get("/api/brokers")
            assert {one["node_id"]: one["in_service"] for one in brokers["brokers"]} == {1: True, 2: True, 3: False}
            _, third = await page.get("/api/brokers/3/configs")
            assert (third["broker"]["node_id"], third["broker"]["in_service"], third["configs"]) == (3, False, [])
            assert "broker 3 is not in service" in third["error"]["message"]
            status, unknown = await page.get("/api/brokers/9/configs")
            assert (status, unknown["message"]) == (
                502,
                "broker 9 is not in the cluster, which has the brokers: 1, 2, 3",
            )


async def test_partition_without_a_leader_does_not_delay_the_page() -> None:
    async with running_cluster(nodes=3) as cluster:
        client: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
        async with triokafka.AdminClient(**client) as admin, triokafka.Producer(**client) as producer:
            await admin.create_topics(
                [
                    triokafka.NewTopic("lonely", assignments={0: [3], 1: [1]}),
                    triokafka.NewTopic("gone", assignments={0: [3]}),
                ]
            )
            await (await producer.send("lonely", b"still here", partition=1))
            await admin.alter_group_offsets("billing", {TopicPartition("lonely", n): 0 for n in range(2)})
        await cluster.stop(3)
        async with console(client) as page:
            with trio.fail_after(45):  # the former time limit of a response that included the partition was 60 seconds
                _, topic = await page.get("/api/topics/lonely")
                assert [(one["start"], one["end"]) for one in topic["partitions"]] == [(None, None), (0, 1)]
                _, found = await page.get("/api/topics/lonely/messages")
                assert [one["value"]["text"] for one in found["records"]] == ["still here"]
                assert found["left_out"] == [0]
                status, problem = await page.get("/api/topics/gone/messages")
                assert (status, "no partition of topic gone has a leader" in problem["message"]) == (502, True)
                _, producers = await page.get("/api/topics/lonely/producers")
                assert list(producers["producers"]) == ["lonely-1"]
                group = await page.until("/api/group?id=billing")  # another node may load the group first
                assert [(one["partition"], one["lag"]) for one in group["positions"]] == [(0, None), (1, 1)]
                assert (await page.get("/api/groups"))[1]["silent"] == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=3", [19, 18, 17]),
        ("start=oldest&limit=3&partition=1", [1, 3, 5]),
        ("start=8&limit=500", [16, 17, 18, 19]),
        ("start=@1000015&limit=500", [15, 16, 17, 18, 19]),
        ("key=table 2&limit=2", [17, 14]),
        ("text=till&limit=2&start=oldest", [0, 1]),
        ("text=nowhere", []),
    ],
)
async def test_messages_are_found(query: str, expected: list[int]) -> None:
    async with console_of_a_broker() as (_, page):
        status, found = await page.get(f"/api/topics/orders/messages?{query}")
        assert status == 200
        assert [json.loads(one["value"]["text"])["id"] for one in found["records"]] == expected
        assert found["complete"]


async def test_groups_have_positions_lag_and_members() -> None:
    async with console_of_a_broker() as (broker, page):
        async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 4})
        shown: list[str] = []
        while not shown:  # responses are cached for a second
            _, groups = await page.get("/api/groups?text=bill")
            shown = [one["group_id"] for one in groups["groups"]]
        assert shown == ["billing"]
        _, group = await page.get("/api/group?id=billing")
        assert [(one["topic"], one["offset"], one["lag"]) for one in group["positions"]] == [("orders", 4, 6)]
        assert group["group"]["state"] == "Empty"


async def test_rebalances_that_the_page_has_shown_can_be_replayed() -> None:
    """Also those between two samples."""
    async with console_of_a_broker(limits=ConsoleLimits(sample_interval_ms=3_600_000)) as (broker, page):
        async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 4})
        assert (await page.until("/api/group?id=billing"))["group"]["members"] == []
        async with triokafka.Consumer(
            "orders", group_id="billing", bootstrap_servers=broker.bootstrap_servers
        ) as consumer:
            while not consumer.assignment():
                await consumer.poll(timeout_ms=100)
            found: dict[str, Any] = {"rebalances": []}
            while not found["rebalances"] or not found["rebalances"][-1]["assignment"]:  # responses are cached
                _, found = await page.get("/api/group?id=billing")
            assert found["rebalances"][0]["assignment"] == {}
            (partitions,) = found["rebalances"][-1]["assignment"].values()
            assert partitions == ["orders-0", "orders-1"]


async def test_brokers_quorum_transactions_and_access() -> None:
    async with console_of_a_broker() as (_, page):
        _, brokers = await page.get("/api/brokers")
        assert brokers["brokers"][0]["leaders"] == 3
        assert brokers["quorum"]["voters"]
        assert brokers["features"]["finalized"]["metadata.version"]["max_version"] > 20
        status, configs = await page.get("/api/brokers/1/configs")
        assert status == 200
        assert any(one["name"] == "log.dirs" for one in configs["configs"])
        assert (await page.get("/api/transactions"))[1] == {"transactions": [], "errors": []}
        assert (await page.get("/api/access"))[1]["acls"]["error"] == "SecurityDisabledError"


async def test_allowed_changes_are_made() -> None:
    async with console_of_a_broker(allow_changes=True) as (broker, page):
        await page.change("create-topic", name="new", partitions=2, replication_factor=-1)
        await page.change("add-partitions", name="new", total=3)
        await page.change("set-config", type="topic", name="new", key="retention.ms", value="1234567")
        sent = await page.change("send-record", topic="new", value="tea", key="k", headers={"h": "v"}, partition=2)
        assert sent == {"partition": 2, "offset": 0}
        await page.change("reset-group", group="g", topic="orders", to="latest")
        async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert {at.offset for at in (await admin.list_group_offsets("g")).values()} == {10}
        await page.change("delete-group", group="g", confirmed="g")
        await page.change("delete-topic", name="new", confirmed="new")
        assert (await page.get("/api/topics/new"))[0] == 404


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("delete-topic", {"name": "orders", "confirmed": "order"}),
        ("create-topic", {"name": "x", "partitions": "many"}),
        ("create-topic", {"name": "a/b", "partitions": 1, "replication_factor": 1}),
        ("set-config", {"type": "planet", "name": "x", "key": "y", "value": "z"}),
        ("reset-group", {"group": "g", "topic": "orders", "to": "somewhere"}),
        ("send-record", {"topic": "orders", "value": 5}),
    ],
)
async def test_wrong_change_is_refused_with_a_reason(name: str, document: dict[str, Any]) -> None:
    async with console_of_a_broker(allow_changes=True) as (_, page):
        status, found = await page.post(f"/api/change/{name}", document)
        assert status in (400, 502)
        assert found["message"]
        assert (await page.get("/api/topics/orders"))[0] == 200


async def test_console_is_read_only_by_default() -> None:
    async with console_of_a_broker() as (_, page):
        status, found = await page.post("/api/change/delete-topic", {"name": "orders", "confirmed": "orders"})
        assert (status, "read-only" in found["message"]) == (403, True)
        assert (await page.load())["changes"] is False


async def test_foreign_requests_are_refused() -> None:
    """Another site's page in the same browser, a name of another site that resolves to this address, an old page."""
    async with console_of_a_broker(allow_changes=True) as (_, page):
        assert (await page.get("/api/overview", Host="evil.example"))[0] == 403
        assert (await page.get("/api/overview", Origin="http://evil.example"))[0] == 403
        assert (await page.get("/api/overview", Origin=f"http://{HOST}"))[0] == 200
        document = {"name": "orders", "confirmed": "orders"}
        assert (await page.post("/api/change/delete-topic", document, **{"X-Console-Token": ""}))[0] == 403
        assert (await page.post("/api/change/delete-topic", document, **{"X-Console-Token": "é"}))[0] == 403
        response = await page.client.get("/", headers={"Host": HOST})
        assert "default-src 'self'" in response.headers["Content-Security-Policy"]
        for path in ("/static/..%2fapp.py", "/static/app.py", "/nowhere"):
            assert (await page.client.get(path, headers={"Host": HOST})).status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/topics/nowhere", 404),
        ("/api/topics/nowhere/messages", 404),
        ("/api/topics/orders/messages?partition=7", 404),
        ("/api/topics/orders/messages?limit=many", 400),
        ("/api/topics/orders/messages?start=later", 400),
        ("/api/topics/orders/messages?isolation=full", 400),
        ("/api/topics?page=-1", 200),
    ],
)
async def test_invalid_request_has_an_error_status(path: str, status: int) -> None:
    async with console_of_a_broker() as (_, page):
        found, document = await page.get(path)
        assert found == status, document


async def test_users_of_the_cluster_log_in() -> None:
    async with running_broker(users={"alice": "secret-of-alice"}) as broker:
        client = {key: value for key, value in broker.client_options("alice").items() if not key.startswith("sasl_p")}
        client.pop("sasl_username", None)
        async with console(client, needs_login=True) as page:
            assert (await page.get("/api/overview"))[0] == 401
            status, found = await page.post("/api/login", {"user": "alice", "password": "wrong"})
            assert (status, "secret" in json.dumps(found)) == (401, False)
            assert (await page.post("/api/login", {"user": "alice", "password": "secret-of-alice"}))[0] == 200
            assert (await page.get("/api/overview"))[0] == 200
            assert (await page.post("/api/logout", {}))[0] == 200
            assert (await page.get("/api/overview"))[0] == 401


async def test_live_tail_ends_with_the_session() -> None:
    async with running_broker(users={"alice": "secret-of-alice"}) as broker:
        client = broker.client_options("alice")
        async with (
            triokafka.AdminClient(**client) as admin,
            triokafka.Producer(**client) as producer,
            console(client, needs_login=True) as page,
        ):
            await admin.create_topics([triokafka.NewTopic("orders", 1)])
            await page.post("/api/login", {"user": "alice", "password": "secret-of-alice"})
            async with page.client.request("/api/topics/orders/tail", headers={"Host": HOST}) as connection:
                await connection.send_complete()
                shown = b""
                while b'"ready": true' not in shown:
                    shown += await connection.receive()
                await (await producer.send("orders", b"before"))
                while b"before" not in shown:
                    shown += await connection.receive()
                await page.post("/api/logout", {})
                await (await producer.send("orders", b"after"))
                with trio.fail_after(60):
                    while b"you have logged out" not in shown:
                        shown += await connection.receive()
                assert b"after" not in shown


async def test_login_does_not_use_the_credentials_of_the_consoles_own_client() -> None:
    """A properties file for Java has them in ``sasl.jaas.config``, which takes precedence over ``sasl_username``."""
    async with running_broker(users={"admin": "secret-of-admin", "alice": "secret-of-alice"}) as broker:
        client = broker.client_options("admin", mechanism="SCRAM-SHA-512")
        jaas = 'ScramLoginModule required username="admin" password="secret-of-admin";'
        for own in ({}, {"sasl_jaas_config": jaas}, {"sasl_plain_username": "admin"}):
            if own:
                client = {name: value for name, value in client.items() if name not in ("sasl_username",)}
            async with console({**client, **own}, needs_login=True) as page:
                assert (await page.post("/api/login", {"user": "alice", "password": "wrong"}))[0] == 401
                assert (await page.post("/api/login", {"user": "alice", "password": ""}))[0] == 401
                assert (await page.post("/api/login", {"user": "alice", "password": "secret-of-alice"}))[0] == 200


@pytest.mark.parametrize(
    "client",
    [
        {},
        {"security_protocol": "SSL"},
        {"security_protocol": "SASL_SSL"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"},
        {"security_protocol": "SSL", "sasl_mechanism": "PLAIN"},
    ],
)
def test_console_with_a_login_refuses_a_cluster_that_checks_no_passwords(client: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="checks no passwords"):
        ConsoleOptions({"bootstrap_servers": "127.0.0.1:1", **client}, frozenset({HOST}), needs_login=True)


async def test_unreachable_cluster_is_an_error_and_the_page_continues() -> None:
    async with running_broker() as broker:
        client = {"bootstrap_servers": broker.bootstrap_servers, "default_api_timeout_ms": 1_000}
        async with console(client) as page:
            assert (await page.get("/api/overview"))[0] == 200
            await broker.stop()
            assert (await page.get("/api/topics/any"))[0] in (502, 504)
            await broker.start()
            status = 0
            while status != 404:
                status, _ = await page.get("/api/topics/any")


# ------------------------------------------------------------------------------------------------ the command line


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "triokafka", "console", *words]


async def see_live_tail(broker: RunningBroker, port: int) -> None:
    async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.create_topics([triokafka.NewTopic("orders", 2)])
    tail = await trio.open_tcp_stream("127.0.0.1", port)
    await tail.send_all(f"GET /api/topics/orders/tail HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    shown = b""
    while b'"ready": true' not in shown:
        shown += await tail.receive_some()
    async with triokafka.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send("orders", b"fresh")
    while b"fresh" not in shown:
        shown += await tail.receive_some()


async def test_command_serves_the_page_and_ends_cleanly() -> None:
    async with running_broker() as broker:
        process = await trio.lowlevel.open_process(
            command("--bootstrap-server", broker.bootstrap_servers, "--listen", "127.0.0.1:0"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            with trio.fail_after(PATIENCE):
                line = b""
                while not line.endswith(b"\n"):
                    line += await process.stdout.receive_some()
                address = line.split()[1].decode()
                port = int(address.rstrip("/").rpartition(":")[2])
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                await stream.send_all(f"GET /api/overview HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
                answer = await stream.receive_some()
                assert answer.startswith(b"HTTP/1.1 200")
                await see_live_tail(broker, port)
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
            assert b"Traceback" not in await process.stderr.receive_some()
        finally:
            process.kill()  # it has ended unless the test failed
            await process.wait()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--listen", "8089"], "takes HOST:PORT"),
        (["--listen", "0.0.0.0:8089"], "give --login, or listen on 127.0.0.1"),
        (["--listen", "127.0.0.1:0", "--bootstrap-server", "a:b"], "expected 'host:port' with a number as port"),
    ],
)
def test_wrong_use_of_the_console_is_one_error_line(words: list[str], problem: str) -> None:
    ran = subprocess.run(command(*words), capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert problem in ran.stderr


def test_page_loads_nothing_from_other_hosts() -> None:
    static = Path(triokafka.__file__).parent / "console" / "static"
    for file in static.iterdir():
        text = (
            file.read_text("utf-8")
            .replace('xmlns="http://www.w3.org/2000/svg"', "")
            .replace('"http://www.w3.org/2000/svg"', "")
        )
        assert not re.search(r"https?://", text), file.name
