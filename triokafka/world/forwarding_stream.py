"""A stream over another one."""

from __future__ import annotations

from triokafka.world.stream import Stream


class ForwardingStream(Stream):
    """Passes every call on to the stream ``inner``, except the transfer of bytes and `expect`."""

    def __init__(self, inner: Stream) -> None:
        self.inner = inner

    def limit_silence(self, seconds: float) -> None:
        self.inner.limit_silence(seconds)

    def widen_send_buffer(self, size: int) -> None:
        self.inner.widen_send_buffer(size)

    def bytes_drained(self) -> int:
        return self.inner.bytes_drained()

    def close(self) -> None:
        self.inner.close()

    @property
    def peer_address(self) -> tuple[str, int]:
        return self.inner.peer_address

    @property
    def local_address(self) -> tuple[str, int]:
        return self.inner.local_address
