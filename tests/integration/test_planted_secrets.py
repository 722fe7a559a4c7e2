"""Secrets planted in every secret option appear in no output: logs, representations, tracebacks, dumps."""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import triokafka
from tests.integration.test_console import HOST, console
from tests.support.asyncio_programs import run as run_asyncio
from tests.support.broker_process import BrokerProcess
from triokafka import blocking
from triokafka.asyncio import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.config.broker_config import is_secret
from triokafka.broker_stub.config.security_names import SECURITY_NAMES
from triokafka.broker_stub.control.endpoint import ControlEndpoint
from triokafka.broker_stub.metrics.prometheus import as_prometheus_text
from triokafka.cli.app import run
from triokafka.client.admin import ConfigResource, ConfigResourceType
from triokafka.client.config import ConsumerOptions, ProducerOptions
from triokafka.client.otel_metrics import OpenTelemetryMetrics
from triokafka.console import ConsoleOptions
from triokafka.errors import KafkaError
from triokafka.formats.registry import SchemaRegistry
from triokafka.mirror import Mirror, MirrorOptions
from triokafka.security.java_names import SECRET_OPTIONS
from triokafka.testing import running_broker
from triokafka.testing.blocking import running_broker as blocking_broker
from triokafka.testing.control import control_actions
from triokafka.world.system import RealWorld

PLANTED = "Pl4nted-s3cret-{}-value"


class Output:
    """All output of a run, and the secrets that must not be in it."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}
        self.texts: list[tuple[str, str]] = []

    def plant(self, name: str) -> str:
        """Return a new secret for an option."""
        return self.secrets.setdefault(
            name, PLANTED.format(f"{len(self.secrets)}{name.replace('.', '').replace('_', '')}")
        )

    def add(self, where: str, text: object) -> None:
        """Add a text, or the representations of an object."""
        self.texts.append((where, text if isinstance(text, str) else f"{text!r} {text}"))

    def add_error(self, where: str, error: BaseException, *, local_variables: bool = True) -> None:
        """Add an error with its causes, and with the local variables of the package's frames, as error trackers record
        them.

        The frames of a caller, and of a constructor, contain the options that the caller passed.
        """
        captured = traceback.TracebackException.from_exception(error, capture_locals=local_variables)
        part: traceback.TracebackException | None = captured
        while part is not None:
            for frame in part.stack:
                if frame.filename == __file__:
                    frame.locals = None
            part = part.__cause__ or part.__context__
        self.add(where, "".join(captured.format()))

    def leaks(self) -> set[str]:
        """Return each output that contains a secret, plain or in base64, with that secret's name."""
        found = set()
        for name, secret in self.secrets.items():
            encoded = base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]
            for where, text in self.texts:
                if secret in text or encoded in text:
                    found.add(f"{where}: {name}")
        return found


@pytest.fixture
def output() -> Iterator[Output]:
    """Collect all log lines at DEBUG meanwhile."""
    collected = Output()

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            collected.add(f"log {record.name}", self.format(record) + repr(record.args))

    handler, root = Collector(), logging.getLogger()
    level, handlers = root.level, list(root.handlers)  # a command in this process sets them, too
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield collected
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _encrypted_key(certificate: trustme.LeafCert, password: str) -> str:
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())).decode()


@asynccontextmanager
async def noting(output: Output, where: str, client: Any) -> AsyncIterator[Any]:
    """Use a client; record its representation, its metrics, and the error that ends the block."""
    output.add(f"{where} repr", client)
    try:
        async with client as entered:
            output.add(f"{where} variables", repr({name: repr(value) for name, value in _variables(client)}))
            yield entered
            if hasattr(entered, "metrics"):
                output.add(f"{where} metrics", repr(entered.metrics()))
    except KafkaError as error:
        output.add_error(f"{where} error", error)


def _variables(client: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(client, "__dict__", {}).items()
    for kind in type(client).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(client, name):
                yield name, getattr(client, name)


async def test_clients_and_an_embedded_broker_show_no_secret(output: Output) -> None:
    password = output.plant("password")
    async with running_broker(tls=True, users={"alice": password}) as broker:
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            good = broker.client_options("alice", mechanism=mechanism)
            wrong = {**good, "sasl_password": output.plant("wrong password")}
            with trio.fail_after(60):
                async with noting(output, "producer", triokafka.Producer(**good)) as producer:
                    await (await producer.send("orders", b"v"))
                consumer = triokafka.Consumer("orders", auto_offset_reset="earliest", **good)
                async with noting(output, "consumer", consumer) as entered:
                    await entered.poll(timeout_ms=5000)
                async with noting(output, "admin", triokafka.AdminClient(**good)) as admin:
                    resource = ConfigResource(ConfigResourceType.BROKER, str(broker.node_id))
                    output.add("describe_configs", repr(await admin.describe_configs([resource])))
                async with noting(output, "refused producer", triokafka.Producer(**wrong)) as producer:
                    await (await producer.send("orders", b"v"))
                async with noting(output, "refused consumer", triokafka.Consumer("orders", **wrong)) as entered:
                    await entered.poll(timeout_ms=5000)
                async with noting(output, "refused admin", triokafka.AdminClient(**wrong)) as admin:
                    await admin.list_topics()
        output.add("broker", broker)
        output.add("broker config", broker.config)
        output.add("broker parts", repr([repr(value) for _, value in _variables(broker.broker)]))
    assert output.leaks() == set()


def test_every_secret_option_of_a_client_stays_hidden(output: Output) -> None:
    """The errors include those about other options, and about secrets of a wrong type or in a wrong option."""
    known = {field.name for kind in (ProducerOptions, ConsumerOptions) for field in fields(kind)}
    secret_names = sorted(SECRET_OPTIONS & known - {"ssl_certfile"})  # errors name its file
    assert len(secret_names) >= 6
    for name in secret_names:
        secret = output.plant(name)
        if name == "sasl_jaas_config":
            secret = f'x.PlainLoginModule required username="a" password="{secret}" broken;'
        for protocol in ("SASL_SSL", "SASL_PLAINTEXT", "SSL", "PLAINTEXT"):
            for extra in (
                {},
                {"sasl_mechanism": "PLAIN"},
                {"linger_msx": 1},
                {"acks": "none at all"},
                {name: [secret]},
            ):
                given: dict[str, Any] = {name: secret, "bootstrap_servers": "127.0.0.1:1", **extra}
                given.setdefault("security_protocol", protocol)
                try:
                    client: Any = triokafka.Producer(**given)
                except (KafkaError, TypeError, ValueError) as error:
                    output.add_error(f"{name} refused", error, local_variables=False)
                else:
                    output.add(f"{name} taken", client)
                    output.add(f"{name} parts", repr([repr(value) for _, value in _variables(client)]))
    assert output.leaks() == set()


def test_credentials_in_addresses_and_urls_stay_hidden(output: Output) -> None:
    secret = output.plant("url")
    endpoint = "sasl_oauthbearer_token_endpoint_url"
    client: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1"}
    oauth = {**client, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    attempts: list[tuple[Any, dict[str, Any]]] = [
        (triokafka.Producer, {"bootstrap_servers": f"alice:{secret}@127.0.0.1:1"}),
        (triokafka.Producer, {"bootstrap_servers": [f"SASL_SSL://alice:{secret}@127.0.0.1:1"]}),
        (triokafka.Producer, {**oauth, endpoint: f"https://alice:{secret}@127.0.0.1/token"}),
        (triokafka.Producer, {**oauth, endpoint: f"https://alice:{secret}@[/token"}),
        (blocking.KafkaProducer, {"bootstrap_servers": f"SASL_SSL://alice:{secret}@127.0.0.1:1"}),
        (blocking.KafkaProducer, {**client, "proxy_url": f"socks5://alice:{secret}@127.0.0.1:1"}),
        (blocking.KafkaConsumer, {**client, "socks5_proxy": f"socks5://alice:{secret}@127.0.0.1:1"}),
        (SchemaRegistry, {"url": f"http://alice:{secret}@127.0.0.1:1"}),
        (SchemaRegistry, {"url": "http://127.0.0.1:1", "token": f"{secret}\n"}),
    ]
    for make, options in attempts:
        with pytest.raises(KafkaError) as refused:
            make(**options)
        output.add_error(f"{make.__name__} {options}".replace(secret, "…"), refused.value, local_variables=False)
    assert output.leaks() == set()


def test_every_secret_option_of_a_broker_stays_hidden(output: Output) -> None:
    secret_names = sorted(
        f"{prefix}{name}"
        for name in SECURITY_NAMES
        for prefix in ("", "listener.name.external.", "listener.name.external.plain.")
        if is_secret(name)
    )
    assert len(secret_names) > 15
    for name in secret_names:
        given = {
            "listeners": "EXTERNAL://127.0.0.1:0",
            "listener.security.protocol.map": "EXTERNAL:SASL_SSL",
            "inter.broker.listener.name": "EXTERNAL",
            "log.dirs": "/nowhere",
            name: output.plant(name),
        }
        try:
            config = BrokerConfig.from_properties(given)
        except KafkaError as error:
            output.add_error(f"{name} refused", error, local_variables=False)
        else:
            output.add(f"{name} taken", config)
    assert output.leaks() == set()


async def test_console_control_endpoint_and_metrics_show_no_secret(output: Output) -> None:
    password = output.plant("password")
    reader = InMemoryMetricReader()
    async with running_broker(tls=True, users={"alice": password}) as broker:
        good = broker.client_options("alice", mechanism="PLAIN")
        wrong = {**good, "sasl_password": output.plant("wrong password")}
        reporters = [OpenTelemetryMetrics(MeterProvider([reader]))]
        async with triokafka.Producer(**good, metric_reporters=reporters) as producer:
            await (await producer.send("orders", b"v"))
            found = await trio.to_thread.run_sync(reader.get_metrics_data)
            assert found is not None
            output.add("OpenTelemetry", found.to_json())
        output.add("Prometheus", as_prometheus_text(broker.broker.metrics()))
        control = ControlEndpoint(broker.faults, RealWorld(), broker.broker.metrics, control_actions(broker))
        for path in ("/brokers", "/metrics", "/faults"):
            output.add(f"control {path}", str(await control.carry_out("GET", path, b"")))
        paths = ("overview", "brokers", f"brokers/{broker.node_id}/configs", "topics", "topics/orders", "access")
        for login in (good, wrong):
            output.add("console options", ConsoleOptions(login, frozenset({HOST})))
            async with console(login) as page:
                for path in ("/", *(f"/api/{one}" for one in (*paths, "groups", "metrics", "transactions", "faults"))):
                    response = await page.client.get(path, headers={"Host": HOST})
                    output.add(f"console {path}", await response.get_data(as_text=True))
    assert output.leaks() == set()


async def test_mirror_shows_no_secret(output: Output) -> None:
    users = {"alice": output.plant("password")}
    async with running_broker(users=users) as west, running_broker(users=users) as east:
        good = east.client_options("alice", mechanism="PLAIN")
        wrong = {**good, "sasl_password": output.plant("wrong password")}
        for target in (good, wrong):
            options = MirrorOptions(source=west.client_options("alice", mechanism="PLAIN"), target=target)
            output.add("mirror options", options)
            mirror = Mirror(options)
            output.add("mirror variables", repr({name: repr(value) for name, value in _variables(mirror)}))
            try:
                with trio.fail_after(60):
                    await mirror.run(until_caught_up=True)
            except KafkaError as error:
                output.add_error("mirror error", error)
            else:
                assert target is good
    assert output.leaks() == set()


def test_blocking_and_asyncio_clients_show_no_secret(output: Output) -> None:
    with blocking_broker(users={"alice": output.plant("password")}) as broker:
        good: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "alice",
            "sasl_plain_password": output.secrets["password"],
        }
        wrong = {**good, "sasl_plain_password": output.plant("wrong password")}
        makers = (blocking.KafkaProducer, blocking.KafkaConsumer, blocking.KafkaAdminClient)
        asynchronous = (AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient)

        async def use(make: Any, options: dict[str, Any]) -> None:
            client = make(**options)
            output.add(f"{make.__name__} repr", client)
            try:
                await client.start()
                output.add(f"{make.__name__} variables", repr({name: repr(one) for name, one in _variables(client)}))
            finally:
                await (client.close() if make is AIOKafkaAdminClient else client.stop())

        for options in (good, wrong):
            for make in makers:
                try:
                    client: Any = make(**options)
                except KafkaError as error:
                    output.add_error(f"{make.__name__} refused", error, local_variables=False)
                else:
                    output.add(f"{make.__name__} repr", client)
                    output.add(
                        f"{make.__name__} variables", repr({name: repr(one) for name, one in _variables(client)})
                    )
                    if make is not blocking.KafkaAdminClient:
                        output.add(f"{make.__name__} metrics", repr(client.metrics()))
                    client.close()
            for other in asynchronous:
                try:
                    run_asyncio(use(other, options))
                except KafkaError as error:
                    output.add_error(f"{other.__name__} refused", error, local_variables=False)
    assert output.leaks() == set()


def _command(output: Output, where: str, *arguments: str) -> str:
    """Run a command in this process, which saves a Python start for each; its log lines are recorded, too."""
    written, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(errors):
        run(arguments)
    output.add(where, written.getvalue() + errors.getvalue())
    return written.getvalue()


def _process(output: Output, where: str, *arguments: str, input_text: str) -> None:
    """Run a command in its own process, with ``input_text`` as its input."""
    command = [sys.executable, "-m", "triokafka", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, input=input_text)
    assert done.returncode == 0, done
    output.add(where, f"{done.stdout}{done.stderr}")


@pytest.mark.timeout(300)
def test_processes_and_commands_show_no_secret(output: Output, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    key_password, password = output.plant("ssl.key.password"), output.plant("password")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    chain = "".join(one.bytes().decode() for one in certificate.cert_chain_pems)
    (tmp_path / "broker.pem").write_text(_encrypted_key(certificate, key_password) + chain)
    jaas = f'PlainLoginModule required username="node" password="{password}" user_node="{password}";'
    config = tmp_path / "broker.properties"
    config.write_text(
        "".join(
            f"{name}={value}\n"
            for name, value in {
                "listeners": "SECURE://127.0.0.1:0",
                "listener.security.protocol.map": "SECURE:SASL_SSL",
                "inter.broker.listener.name": "SECURE",
                "log.dirs": str(tmp_path / "data"),
                "ssl.keystore.location": str(tmp_path / "broker.pem"),
                "ssl.key.password": key_password,
                "ssl.truststore.location": str(tmp_path / "ca.pem"),
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "plain.sasl.jaas.config": jaas,
                "listener.name.secure.ssl.truststore.password": output.plant("store password"),
            }.items()
        )
    )
    client = tmp_path / "client.properties"
    client.write_text(
        f"security.protocol=SASL_SSL\nssl.truststore.location={tmp_path / 'ca.pem'}\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config=PlainLoginModule required username="node" password="{password}";\n'
    )
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(client.read_text().replace(password, output.plant("wrong password")))
    scram = output.plant("scram password")
    (tmp_path / "scram.secret").write_text(scram)
    broker = BrokerProcess(None, config=config, logs_to=tmp_path / "broker.log", verbose=True)
    bootstrap = broker.start()
    try:
        for login in (client, wrong):
            common = ("--bootstrap-server", bootstrap, "--command-config", str(login))
            _command(output, "topics list", "topics", "list", *common)
            _command(
                output, "users add", "users", "add", "bob", "--password-file", str(tmp_path / "scram.secret"), *common
            )
        common = ("--bootstrap-server", bootstrap, "--command-config", str(client))
        _command(output, "configs describe", "configs", "describe", "--entity-type", "brokers", "--all", *common)
        _command(output, "users list", "users", "list", *common)
        for option in ("ssl.keystore.password", "ssl.keystore.pasword", "ssl.keystore.certificate.chain"):
            change = f"listener.name.other.{option}={output.plant(option)}"
            _command(output, f"alter {option}", "configs", "alter", "--broker", "1", "--add-config", change, *common)
        shown = _command(output, "configs after", "configs", "describe", "--entity-type", "brokers", "--all", *common)
        assert "listener.name.other.ssl.keystore.pasword=None sensitive=true" in shown
        _process(output, "produce", "produce", "orders", *common, input_text="x\n")
        bad = f'sasl.jaas.config=PlainLoginModule required password="{output.plant("broken jaas")}'
        _command(output, "broken option", "topics", "list", "--bootstrap-server", bootstrap, "-X", bad)
    finally:
        broker.stop()
    output.add("broker log", (tmp_path / "broker.log").read_text())
    log = next((tmp_path / "data").glob("__cluster_metadata-0/*.log"))
    shown = _command(output, "log dump", "log", "dump", "--cluster-metadata-decoder", str(log))
    user = next(line for line in shown.splitlines() if "USER_SCRAM_CREDENTIAL" in line)
    assert user.count("[redacted]") == 3
    assert output.leaks() == set()


def test_spark_options_hide_secrets(output: Output) -> None:
    from triokafka.spark.planning.client_settings import client_settings

    for name in (
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.truststore.password",
        "sasl.password",
    ):
        given = {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.security.protocol": "SASL_SSL",
            f"kafka.{name}": output.plant(name),
        }
        with contextlib.suppress(Exception):
            output.add(f"spark {name}", client_settings(given))
        try:
            client_settings({**given, "kafka.linger.mss": "1", "kafka.sasl.mechanism": "NONE"})
        except Exception as error:
            output.add_error(f"spark {name} refused", error, local_variables=False)
    assert output.leaks() == set()
