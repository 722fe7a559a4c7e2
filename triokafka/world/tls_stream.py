"""TLS over any stream: encryption by the standard library's `ssl`, bytes through a `Stream`.

`TlsStream` works over sockets and over the simulated network alike. It decrypts into the caller's buffer, and it can
send without waiting (`try_send`), so that small requests need no background task.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from typing import Final

import trio

from triokafka.structs import Buffer
from triokafka.world.file_slice import FileSlice
from triokafka.world.forwarding_stream import ForwardingStream
from triokafka.world.stream import Stream
from triokafka.world.threads import in_thread

_FIRST_RECEIVE_BYTES: Final = 16 << 10
_RECEIVE_BYTES: Final = 256 << 10
"""Encrypted bytes that one receive takes; the buffer is smaller at first and grows while the peer fills it."""
_HELLO_BYTES: Final = 1 << 10
"""Bytes that one receive takes before a handshake; a client's first message usually has 200 to 1,800."""
_HANDSHAKE_RECORD: Final = 22
_RECORD_HEADER_BYTES: Final = 5
_MOST_RECORD_BYTES: Final = 16 << 10
_CLIENT_HELLO: Final = 1
_MESSAGE_START_BYTES: Final = 4
_PIECE_BYTES: Final = 128 << 10
"""Plain bytes that are encrypted before they are sent: bounds the memory of a large response or file slice."""
_SMALL_BYTES: Final = 4 << 10
_TRY_BYTES: Final = 128 << 10
"""Plain bytes of eight TLS records, the most that `TlsStream.try_send` encrypts without knowing that they can be sent.
One system call sends them all."""


class TlsStream(ForwardingStream):
    """The TLS layer of one connection. Call `handshake` once, before everything else.

    Besides the errors of `Stream`, methods raise `ssl.SSLError`, which is an `OSError`. A peer that closes without the
    closing message of TLS counts as closed: Kafka's frames have a size, so a cut frame is noticed.

    Args:
        received: encrypted bytes that the caller has received already, see `receive_client_hello`.
    """

    def __init__(
        self,
        inner: Stream,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_name: str | None,
        received: bytes = b"",
    ) -> None:
        super().__init__(inner)
        self._incoming = ssl.MemoryBIO()
        self._incoming.write(received)
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name or None
        )
        """The state of the TLS connection: certificates, cipher, version."""
        self._received = memoryview(bytearray(_FIRST_RECEIVE_BYTES))
        self._sending = trio.Lock()
        self._unsent: Buffer = b""
        self._ahead = 0  # plain bytes that are encrypted already, and that the caller will pass again
        self.heard = False
        """Whether the peer has sent any byte."""

    async def handshake(self) -> None:
        """Do the handshake. The caller bounds the time.

        Raises:
            ssl.SSLCertVerificationError: the peer's certificate is not acceptable.
            ssl.SSLError: the handshake failed for another reason.
            OSError: the connection broke.
        """
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    raise ssl.SSLEOFError(
                        ssl.SSL_ERROR_EOF, "the peer closed the connection during the TLS handshake"
                    ) from None
            except ssl.SSLError:
                await self._say_why()
                raise
            else:
                await self._flush()
                return

    async def _say_why(self) -> None:
        """Send the alert, so that the peer can name the reason."""
        try:
            with trio.move_on_after(1):
                await self._flush()
        except OSError:
            return  # the peer has gone, or does not listen

    # Sending

    async def send(self, *buffers: Buffer) -> None:
        for piece in _pieces(buffers, _PIECE_BYTES):
            if self._ahead:
                skipped = min(self._ahead, len(piece))
                self._ahead -= skipped
                piece = memoryview(piece)[skipped:]
            self._encrypt(piece)
            if self._outgoing.pending >= _PIECE_BYTES:
                await self._flush()
        await self._flush()

    async def send_parts(self, parts: Sequence[Buffer | FileSlice]) -> None:
        buffers: list[Buffer] = []
        for part in parts:
            if not isinstance(part, FileSlice):
                buffers.append(part)
                continue
            if buffers:
                await self.send(*buffers)
                buffers = []
            await self._send_slice(part)
        if buffers:
            await self.send(*buffers)

    async def _send_slice(self, part: FileSlice) -> None:
        scratch = memoryview(bytearray(min(len(part), _PIECE_BYTES)))
        start = 0
        while start < len(part):
            piece: Buffer = scratch[: part.copy_resident(start, scratch)]
            if not piece:  # not in the page cache: a thread reads it, so that the event loop never waits for the disk
                piece = await in_thread(None, part.read, start, _PIECE_BYTES)
            await self.send(piece)
            start += len(piece)

    def try_send(self, *buffers: Buffer) -> int:
        if self._sending.locked() or self._ahead or not self._push():
            return 0
        sent = 0
        for piece in _pieces(buffers, _TRY_BYTES):
            self._encrypt(piece)
            if not self._push():
                # The record is encrypted and must be sent, so the caller passes its plain bytes again, see `send`.
                self._ahead = len(piece)
                return sent
            sent += len(piece)
        return sent

    def _push(self) -> bool:
        """Send encrypted bytes as far as possible without waiting. Return whether none are left."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = self._outgoing.read()
            sent = self.inner.try_send(self._unsent)
            if sent < len(self._unsent):
                self._unsent = memoryview(self._unsent)[sent:]
                return False
            self._unsent = b""

    def _encrypt(self, plain: Buffer) -> None:
        if len(plain):
            try:
                self.tls.write(plain)
            except ssl.SSLZeroReturnError as error:
                raise BrokenPipeError("the peer has closed the TLS connection") from error

    async def _flush(self) -> None:
        if not self._outgoing.pending and not self._unsent:
            return
        lock = self._sending
        if lock.locked():
            await lock.acquire()
        else:
            lock.acquire_nowait()
        try:
            while self._unsent or self._outgoing.pending:
                if not self._unsent:
                    self._unsent = self._outgoing.read()
                await self.inner.send(self._unsent)
                self._unsent = b""
        finally:
            lock.release()

    # Receiving

    async def receive_into(self, buffer: memoryview) -> int:
        got = 0
        while True:
            try:
                # One read returns at most one record; the loop fills the buffer with those that are here.
                while got < len(buffer):
                    read = self.tls.read(len(buffer) - got, buffer[got:] if got else buffer)
                    if not read:
                        return got
                    got += int(read)
                return got
            except ssl.SSLWantReadError:
                if got:
                    return got
                if self._must_speak():
                    await self._flush()
                if not await self._fill():
                    return 0
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return got
            except ssl.SSLError:
                if got:
                    return got  # the next call meets the same error
                raise

    def _must_speak(self) -> bool:
        """Whether TLS itself has something to say, such as the answer to a key update, before more is received.

        It may go with what another task sends. But a peer that does not read, and sends key updates, must not make it
        grow: then the receiver waits, too.
        """
        if self._ahead or not (self._outgoing.pending or self._unsent):
            return False
        return not self._sending.locked() or self._outgoing.pending > 2 * _PIECE_BYTES

    async def _fill(self) -> bool:
        received = self._received
        got = await self.inner.receive_into(received)
        self.waits = self.inner.waits
        if not got:
            return False
        self.heard = True
        self._incoming.write(received[:got])
        if got == len(received) < _RECEIVE_BYTES:
            self._received = memoryview(bytearray(4 * got))
        return True


def _pieces(buffers: Sequence[Buffer], most: int) -> Iterator[Buffer]:
    """Cut and join buffers into pieces of at most ``most`` bytes, so that small ones share a TLS record."""
    small: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if size + len(buffer) <= _SMALL_BYTES:
            small.append(buffer)
            size += len(buffer)
            continue
        if small:
            yield b"".join(small) if len(small) > 1 else small[0]
            small, size = [], 0
        if len(buffer) <= most:
            yield buffer
            continue
        view = memoryview(buffer).cast("B")
        whole = len(view) - len(view) % most
        for start in range(0, whole, most):
            yield view[start : start + most]
        if len(rest := view[whole:]) > _SMALL_BYTES:
            yield rest
        elif rest:  # the rest of a batch goes with the next header
            small, size = [rest], len(rest)
    if small:
        yield b"".join(small) if len(small) > 1 else small[0]


async def receive_client_hello(inner: Stream) -> bytes:
    """Receive the first TLS message of a client, for `TlsStream`, with little memory while it is incomplete.

    If the received bytes do not look like TLS, or the message is longer than one record may be, they are returned as
    they are, and the handshake names the reason. The caller bounds the time.

    Raises:
        ssl.SSLEOFError: the peer closed before.
        OSError: the connection broke.
    """
    hello = _Hello()
    scratch = memoryview(bytearray(_HELLO_BYTES))
    while not hello.is_complete():
        got = await inner.receive_into(scratch)
        if not got:
            raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the peer closed the connection during the TLS handshake")
        hello.received += scratch[:got]
    return bytes(hello.received)


class _Hello:
    """The first message of a handshake, in one record or in many. A byte that came is looked at once."""

    def __init__(self) -> None:
        self.received = bytearray()
        self._records_end = 0  # of the complete records
        self._start = bytearray()  # of the message: its type, and its size in three bytes
        self._size = 0

    def is_complete(self) -> bool:
        """Whether the received bytes contain the whole message, or cannot be one."""
        received = self.received
        while len(received) > self._records_end:
            start = self._records_end
            if received[start] != _HANDSHAKE_RECORD or len(received) > _RECORD_HEADER_BYTES + _MOST_RECORD_BYTES:
                return True
            body = start + _RECORD_HEADER_BYTES
            size = int.from_bytes(received[body - 2 : body], "big")
            if len(received) < body:
                return False
            if not 0 < size <= _MOST_RECORD_BYTES:
                return True
            if len(received) < body + size:
                return False
            self._start += received[body : body + min(size, _MESSAGE_START_BYTES - len(self._start))]
            self._size += size
            self._records_end = body + size
            if len(self._start) == _MESSAGE_START_BYTES and (
                self._start[0] != _CLIENT_HELLO
                or self._size >= _MESSAGE_START_BYTES + int.from_bytes(self._start[1:], "big")
            ):
                return True
        return False


async def start_tls_client(inner: Stream, context: ssl.SSLContext, server_name: str) -> TlsStream:
    """Do the handshake of a client over a connected stream. Raises `OSError`; the caller closes ``inner`` then."""
    stream = TlsStream(inner, context, server_side=False, server_name=server_name)
    await stream.handshake()
    return stream
