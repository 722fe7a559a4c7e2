"""Clients that misuse TLS and SASL: the broker's reaction, and the effect on a good client.

`make long` runs each case with 3,000 connections and its own broker process, with a SASL_SSL or SASL_PLAINTEXT
listener. `make test` runs them with fewer, and shares the brokers. On Linux the good client has its own address.

A busy machine makes every login slow. So the good client also logs in at an idle broker, each time: a login may take a
second, or on a slow machine `_SLOWER` times as long as there.
"""

from __future__ import annotations

import multiprocessing
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final

import trio
import trustme

from tests.hostile.storm import MeasuredBroker, allow_connections, measured_broker
from tests.hostile.table import Row
from tests.support.exact_receive import receive_exactly
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request

CONNECTIONS: Final = 3_000
_SECTION: Final = "authentication"
_PATIENCE_SECONDS: Final = 60
_GOOD_LOGINS: Final = 50
_SLOWER: Final = 3
GOOD_ADDRESS: Final = "127.0.0.1"
BAD_ADDRESS: Final = "127.0.0.2" if sys.platform == "linux" else GOOD_ADDRESS
"""Addresses from which the good client and the others connect."""
_USER, _PASSWORD = "alice", "s3cret"
_DELAY_MS: Final = 100
_MOST_KIB: Final = 160
"""Memory of the broker for a connection that is not authenticated: TLS alone takes 80 KiB."""
_TOKEN_LIMIT: Final = 524_288
_JAAS: Final = f'PlainLoginModule required user_{_USER}="{_PASSWORD}";'
_SASL: Final = (
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", "sasl.mechanism.inter.broker.protocol=PLAIN",
    f"plain.sasl.jaas.config={_JAAS[:-1]} username=\"{_USER}\" password=\"{_PASSWORD}\";",
    f"connection.failed.authentication.delay.ms={_DELAY_MS}", "connections.max.reauth.ms=3600000",
)  # fmt: skip


class SecuredAccess:
    """A secured broker, and connections to it. ``idle`` is another broker like it, which nobody attacks."""

    def __init__(
        self, broker: MeasuredBroker, context: ssl.SSLContext | None, idle: SecuredAccess | None = None
    ) -> None:
        self.broker = broker
        self.idle = self if idle is None else idle
        self._context = context

    def tcp(self, source: str = BAD_ADDRESS) -> socket.socket:
        """Connect, without TLS."""
        return socket.create_connection(self.broker.address, timeout=_PATIENCE_SECONDS, source_address=(source, 0))

    def connect(self, source: str = BAD_ADDRESS) -> socket.socket:
        """Connect, with TLS if the listener has it."""
        plain = self.tcp(source)
        return plain if self._context is None else self._context.wrap_socket(plain, server_hostname="127.0.0.1")

    def log_in(self, source: str = GOOD_ADDRESS) -> float:
        """Connect, log in and request metadata; return the seconds that it took."""
        began = time.monotonic()
        with self.connect(source) as connection:
            assert ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            token = f"\0{_USER}\0{_PASSWORD}".encode()
            assert ask(connection, SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
            assert ask(connection, MetadataRequest(topics=[]), 9).brokers
        return time.monotonic() - began


class GoodLogins:
    """A good client's logins at a broker, each beside one at the idle broker."""

    def __init__(self, access: SecuredAccess) -> None:
        self._access = access
        self._waits: list[float] = []
        self._idle_waits: list[float] = []

    def once(self) -> None:
        """Log in once at both."""
        self._waits.append(self._access.log_in())
        self._idle_waits.append(self._access.idle.log_in())

    def p99_row(self, case: str, *, most: float = 1.0) -> Row:
        """Judge the 99th percentile: below ``most`` seconds unless the machine is slow."""
        return self.row(case, _p99(self._waits), most=most)

    def row(self, case: str, seconds: float, *, most: float = 1.0) -> Row:
        """Judge one login."""
        idle = _p99(self._idle_waits)
        limit = max(most, _SLOWER * idle)
        figure = f"{seconds * 1000:,.0f} ms, idle broker {idle * 1000:,.0f} ms"
        return _row(case, figure, f"{limit * 1000:,.0f} ms", seconds < limit)


def _p99(waits: list[float]) -> float:
    return sorted(waits)[int(len(waits) * 0.99)]


@contextmanager
def secured_broker(*, tls: bool) -> Iterator[SecuredAccess]:
    """Run a broker with a SASL_SSL or SASL_PLAINTEXT listener, and an idle one, for the length of the block."""
    if not tls:
        plain = ("listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT", *_SASL)
        with measured_broker(*plain) as broker, measured_broker(*plain) as idle:
            yield SecuredAccess(broker, None, SecuredAccess(idle, None))
        return
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "broker.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(str(store))
        trust = Path(directory) / "ca.pem"
        authority.cert_pem.write_to_path(str(trust))
        settings = (
            "listener.security.protocol.map=PLAINTEXT:SASL_SSL",
            f"ssl.keystore.location={store}",
            f"ssl.truststore.location={trust}",
            *_SASL,
        )
        with (
            measured_broker(*settings, data_directory=Path(directory) / "data") as broker,
            measured_broker(*settings, data_directory=Path(directory) / "idle") as idle,
        ):
            yield SecuredAccess(broker, context, SecuredAccess(idle, context))


def ask(connection: socket.socket, request: Request[Any], version: int) -> Any:
    """Send a request and return the response. Raises `ConnectionError` if the broker closes the connection."""
    connection.sendall(frame(request, version))
    size = int.from_bytes(receive_exactly(connection, 4), "big")
    return decode_response(type(request).response_type, receive_exactly(connection, size), version=version)[1]


def frame(request: Request[Any], version: int) -> bytes:
    """Return the bytes of a request."""
    return b"".join(encode_request(request, version=version, correlation_id=1, client_id="hostile"))


def _held(case: str, access: SecuredAccess, count: int, open_one: Callable[[int], socket.socket]) -> Iterator[Row]:
    """Hold ``count`` connections, and measure the broker's memory and processor time, and a good client's logins."""
    broker = access.broker
    for _ in range(5):
        access.log_in()
    before = broker.resident_kib
    with ExitStack() as held:
        for number in range(count):
            held.enter_context(open_one(number))
        first = access.log_in(BAD_ADDRESS)  # the broker may still be busy with the connections
        logins = GoodLogins(access)
        for _ in range(_GOOD_LOGINS):
            logins.once()
        each = (broker.resident_kib - before) / count
        yield _row(f"{count:,} {case}: memory for each", f"{each:.0f} KiB", f"{_MOST_KIB} KiB", each < _MOST_KIB)
        yield logins.p99_row(f"{count:,} {case}: a good client's p99 login")
        yield logins.row(f"{count:,} {case}: a good client's first login from their address", first)
        busy_before, began = broker.processor_seconds, time.monotonic()
        time.sleep(1)
        busy = (broker.processor_seconds - busy_before) / (time.monotonic() - began)
        yield _row(f"{count:,} {case}: processor while they are silent", f"{busy:.0%}", "10 %", busy < 0.1)


def slow_tls_handshakes(access: SecuredAccess, count: int) -> Iterator[Row]:
    """Hold ``count`` connections that have sent a part of the first message of TLS."""
    hello = _client_hello()

    def open_one(number: int) -> socket.socket:
        connection = access.tcp()
        connection.sendall(hello[: 1 + number % (len(hello) - 1)])
        return connection

    yield from _held("slow TLS handshakes", access, count, open_one)


def half_open_sasl(access: SecuredAccess, count: int) -> Iterator[Row]:
    """Hold ``count`` connections that have started a SCRAM exchange and then send nothing more."""
    first = frame(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 2)

    def open_one(number: int) -> socket.socket:
        connection = access.connect()
        assert ask(connection, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
        connection.sendall(first[: number % len(first)] if number % 2 else first)
        return connection

    yield from _held("half-open SASL exchanges", access, count, open_one)


def half_open_sasl_over_tls(access: SecuredAccess, count: int) -> Iterator[Row]:
    """The same over TLS, where each connection also has the buffers of TLS."""

    def open_one(number: int) -> socket.socket:
        connection = access.connect()
        assert ask(connection, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
        return connection

    yield from _held("half-open SASL exchanges over TLS", access, count // 3, open_one)


def tls_garbage(access: SecuredAccess, count: int) -> Iterator[Row]:
    """Send garbage to a TLS listener, before and after a handshake."""
    random = Random(24)
    access.log_in()
    files, lines_before = access.broker.open_files, len(access.broker.log_lines())
    logins = GoodLogins(access)
    for number in range(count):
        with access.connect() if number % 10 == 0 else access.tcp() as connection:
            raw = connection if not isinstance(connection, ssl.SSLSocket) else None
            junk = random.randbytes(random.randint(1, 300))
            if raw is None:
                # Below TLS: bytes that are not a record of this connection.
                with socket.socket(fileno=connection.detach()) as below:
                    below.settimeout(_PATIENCE_SECONDS)
                    below.sendall(junk)
                    below.shutdown(socket.SHUT_WR)
                    _until_closed(below)
                continue
            connection.sendall((b"\x16\x03\x01" if number % 2 else b"") + junk)
            connection.shutdown(socket.SHUT_WR)
            _until_closed(connection)
        if number % 20 == 1:
            logins.once()
    lines = len(access.broker.log_lines()) - lines_before
    yield _row(f"{count:,} connections of TLS garbage: lines in the log", str(lines), "60", lines < 60)
    yield logins.p99_row("TLS garbage: a good client's p99 login")
    deadline = time.monotonic() + 10
    while access.broker.open_files > files and time.monotonic() < deadline:
        time.sleep(0.05)  # there is no event for the change in another process
    left = max(access.broker.open_files - files, 0)
    yield Row(_SECTION, "TLS garbage: file descriptors left behind", str(left), "0", left == 0)


def _until_closed(connection: socket.socket) -> None:
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        return  # the broker has reset the connection


def _client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a peer")


def sasl_fuzz(access: SecuredAccess, count: int) -> Iterator[Row]:
    """Send SASL requests in random order: no login succeeds without the password, and the broker continues."""
    random = Random(24)
    served = 0
    for _ in range(count // 2):
        served += _talk(access, random)
    logins = GoodLogins(access)
    logins.once()
    yield Row(_SECTION, f"{count // 2:,} random SASL talks: served without a login", str(served), "0", served == 0)
    yield logins.p99_row("random SASL talks: a good client's login afterwards")
    bad = [line for line in access.broker.log_lines() if "Traceback" in line or "unexpected" in line]
    yield Row(_SECTION, "random SASL talks: unexpected errors in the log", str(len(bad)), "0", not bad)


def _talk(access: SecuredAccess, random: Random) -> int:
    """Send random requests of SASL and others; return how many others were executed before a login."""
    good = b"\0alice\0s3cret"
    logged_in = authenticating = False
    with access.connect() as connection:
        for _ in range(random.randint(1, 8)):
            kind = random.choice(("handshake", "handshake", "token", "good token", "versions", "metadata", "junk"))
            try:
                match kind:
                    case "handshake":
                        mechanism = random.choice(("PLAIN", "SCRAM-SHA-256", "GSSAPI", "", "x" * 3000))
                        code = ask(connection, SaslHandshakeRequest(mechanism=mechanism), 1).error_code
                        authenticating = authenticating or (code == 0 and mechanism == "PLAIN")
                    case "token":
                        tokens = (
                            b"",
                            b"\0",
                            b"n,,n=alice,r=abc",
                            b"c=biws,r=abc,p=AAAA",
                            b"\0alice\0guess",
                            b"\xff" * 3000,
                        )
                        ask(
                            connection,
                            SaslAuthenticateRequest(auth_bytes=random.choice(tokens)),
                            random.choice((0, 1, 2)),
                        )
                    case "good token":
                        code = ask(connection, SaslAuthenticateRequest(auth_bytes=good), 2).error_code
                        logged_in = logged_in or (code == 0 and authenticating)
                        if code == 0 and not logged_in:
                            return 1
                    case "versions":
                        ask(connection, ApiVersionsRequest(client_software_name="f", client_software_version="1"), 3)
                    case "metadata":
                        ask(connection, MetadataRequest(topics=[]), 9)
                        if not logged_in:
                            return 1
                    case _:
                        connection.sendall(random.randbytes(random.randint(1, 60)))
                        connection.shutdown(socket.SHUT_WR)
                        _until_closed(connection)
                        return 0
            except OSError:  # the broker has closed the connection
                return 0
    return 0


def huge_tokens(access: SecuredAccess, count: int) -> Iterator[Row]:
    """Send tokens at and above the limit, many at once."""
    many = max(10, count // 30)
    access.log_in()
    before = access.broker.resident_kib
    with ExitStack() as held:
        connections = [held.enter_context(access.connect()) for _ in range(many)]
        body = frame(SaslAuthenticateRequest(auth_bytes=bytes(_TOKEN_LIMIT - 100)), 1)
        for connection in connections:
            assert ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            connection.sendall(body[:-1])  # the last byte is never sent
        logins = GoodLogins(access)
        for _ in range(_GOOD_LOGINS):
            logins.once()
        grown = (access.broker.resident_kib - before) / 1024
    most = many * 0.75 + 16
    yield _row(f"{many} unfinished tokens of 512 KiB: memory", f"{grown:.0f} MiB", f"{most:.0f} MiB", grown < most)
    yield logins.p99_row("unfinished tokens: a good client's worst login")
    closed = 0
    for _ in range(10):
        with access.connect() as connection:
            assert ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            try:
                ask(connection, SaslAuthenticateRequest(auth_bytes=bytes(_TOKEN_LIMIT + 1)), 1)
            except ConnectionError:
                closed += 1
    yield Row(_SECTION, "larger tokens: connections closed", f"{closed} of 10", "10 of 10", closed == 10)


def wrong_passwords(access: SecuredAccess, count: int) -> Iterator[Row]:
    """Log in with wrong passwords, ``count`` times at once: all refusals are delayed, and a good client is served."""
    logins = GoodLogins(access)
    processes = multiprocessing.get_context("spawn")
    access.log_in()
    here, there = processes.Pipe()
    guesser = processes.Process(target=guess_passwords, args=(there, access.broker.address, count))
    guesser.start()
    there.close()
    try:
        assert here.recv() == "begin"
        logins.once()
        while not here.poll():
            logins.once()
        refused: list[float] = here.recv()
    finally:
        guesser.kill()
        guesser.join()
    soonest = min(refused)
    late = len(refused) == count and soonest * 1000 >= _DELAY_MS
    yield Row(
        _SECTION, f"{count:,} wrong passwords at once: soonest refusal", f"{soonest * 1000:.0f} ms",
        f"at least {_DELAY_MS} ms", late,
    )  # fmt: skip
    yield logins.p99_row(f"{count:,} wrong passwords: a good client's p99 login", most=2)


def guess_passwords(results: Connection, address: tuple[str, int], count: int) -> None:
    """Log in ``count`` times at once with a wrong password; send the seconds until each refusal."""
    guess = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    guess += frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess"), 1)
    refused: list[float] = []

    async def one() -> None:
        with trio.socket.socket() as connection:
            await connection.bind((BAD_ADDRESS, 0))
            await connection.connect(address)
            began = trio.current_time()
            await connection.send(guess)
            try:
                while await connection.recv(4096):
                    pass
            except ConnectionError:
                pass  # the broker has reset it
            refused.append(trio.current_time() - began)

    async def all_of_them() -> None:
        with trio.fail_after(_PATIENCE_SECONDS):
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(one)

    allow_connections(count)
    results.send("begin")
    trio.run(all_of_them)
    results.send(refused)


CASES: Final[tuple[tuple[Callable[[SecuredAccess, int], Iterator[Row]], bool], ...]] = (
    (slow_tls_handshakes, True),
    (half_open_sasl_over_tls, True),
    (tls_garbage, True),
    (half_open_sasl, False),
    (sasl_fuzz, False),
    (huge_tokens, False),
    (wrong_passwords, False),
)
"""Each case, and whether its broker has TLS."""


def measure(count: int = CONNECTIONS) -> Iterator[Row]:
    """Run every case with ``count`` connections, each with its own broker."""
    allow_connections(count)
    for case, tls in CASES:
        with secured_broker(tls=tls) as access:
            yield from case(access, count)


def _row(case: str, figure: str, limit: str, met: bool) -> Row:
    return Row(_SECTION, case, figure, f"below {limit}", met)
