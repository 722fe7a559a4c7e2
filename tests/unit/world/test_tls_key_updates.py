"""A peer that requests TLS 1.3 key updates again and again without reading the answers uses bounded memory."""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from triokafka.structs import Buffer
from triokafka.world import Stream
from triokafka.world.tls_stream import TlsStream

_KEY_UPDATE = b"\x18\x00\x00\x01\x01" + b"\x16"  # "update_requested", and the content type of a handshake
_RECORD_BYTES = 5 + len(_KEY_UPDATE) + 16
_UPDATES = 30_000


class Deaf(Stream):
    """Returns the fed bytes; once ``deaf``, a send waits forever, as for a peer that does not read."""

    def __init__(self) -> None:
        self.fed = bytearray()
        self.sent = bytearray()
        self.deaf = False

    async def send(self, *buffers: Buffer) -> None:
        if self.deaf:
            await trio.sleep_forever()
        for buffer in buffers:
            self.sent += buffer

    async def receive_into(self, buffer: memoryview) -> int:
        while not self.fed:
            await trio.testing.wait_all_tasks_blocked()
        got = min(len(self.fed), len(buffer))
        buffer[:got] = self.fed[:got]
        del self.fed[:got]
        return got

    def close(self) -> None:
        pass

    @property
    def peer_address(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    @property
    def local_address(self) -> tuple[str, int]:
        return "127.0.0.1", 2


class RawClient:
    """A client whose secrets are known, so that the test can encrypt messages that the module ssl never sends."""

    def __init__(self, authority: trustme.CA, secrets: Path) -> None:
        context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(secrets)
        self._secrets = secrets
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self.outgoing, server_hostname="server")

    async def shake_hands(self, stream: Deaf) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                stream.fed += self.outgoing.read()
                await trio.testing.wait_all_tasks_blocked()
                self._incoming.write(bytes(stream.sent))
                stream.sent.clear()
            else:
                stream.fed += self.outgoing.read()
                return

    def key_updates(self) -> Iterator[bytes]:
        """Return records that each ask the peer for new keys, and that change the own ones."""
        cipher = self._tls.cipher()
        assert cipher is not None and "GCM" in cipher[0]
        hash_name, key_bytes = ("sha384", 32) if "SHA384" in cipher[0] else ("sha256", 16)
        (line,) = [one for one in self._secrets.read_text().splitlines() if one.startswith("CLIENT_TRAFFIC_SECRET_0")]
        secret = bytes.fromhex(line.split()[2])

        def expand(label: bytes, size: int) -> bytes:
            whole = b"tls13 " + label
            info = size.to_bytes(2, "big") + bytes([len(whole)]) + whole + b"\0\x01"
            return hmac.digest(secret, info, hash_name)[:size]

        header = b"\x17\x03\x03" + (_RECORD_BYTES - 5).to_bytes(2, "big")
        while True:
            # Each record is the first one of its key.
            yield header + AESGCM(expand(b"key", key_bytes)).encrypt(expand(b"iv", 12), _KEY_UPDATE, header)
            secret = expand(b"traffic upd", len(secret))


@pytest.mark.parametrize("sends", [True, False], ids=["while a send waits", "while nothing is sent"])
async def test_flood_of_key_updates_stops_where_its_answers_are_not_read(tmp_path: Path, sends: bool) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("server").configure_cert(context)
    inner = Deaf()
    server = TlsStream(inner, context, server_side=True, server_name=None)
    client = RawClient(authority, tmp_path / "secrets")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.handshake)
        await client.shake_hands(inner)
    inner.deaf = True
    updates = client.key_updates()
    async with trio.open_nursery() as nursery:
        if sends:
            nursery.start_soon(server.send, b"a response")
        inner.fed += b"".join(next(updates) for _ in range(_UPDATES))
        nursery.start_soon(server.receive_into, memoryview(bytearray(100)))
        await trio.testing.wait_all_tasks_blocked()
        assert len(inner.fed) > 200_000, "every request for new keys was answered into memory"
        nursery.cancel_scope.cancel()
