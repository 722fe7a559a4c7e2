"""Memory: how much hostile clients can make a broker hold, how much it releases, and the response times of a good
client meanwhile.

Each case runs one broker process with default options and measures it at rest. Hostile clients then attack while a good
client produces and fetches small batches; memory is measured again after some more good traffic. Numbers of connections
and sizes are arguments, so a short form of the same cases runs in seconds.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.hostile.table import Row
from tests.support.broker_process import BrokerProcess
from triokafka.protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request
from triokafka.records import encode_batch

PEAK_LIMIT: Final = 512 << 20
LEFT_LIMIT: Final = 64 << 20
P99_LIMIT: Final = 0.100
TOPIC: Final = "strangers"
_PATIENCE: Final = 60.0
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes of the cases."""

    frame_bytes: int = 100_000_000
    few: int = 10
    many: int = 50
    expanded_bytes: int = 200_000_000
    seconds: float = 5.0


def frame(request: Request[Any], version: int) -> bytes:
    """Return a request as bytes."""
    return b"".join(encode_request(request, version=version, correlation_id=7, client_id="stranger"))


def produce_frame(records: bytes, *, topic: str = TOPIC, version: int = 9) -> bytes:
    """Return a Produce request with one batch."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    return frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), version)


class Peer:
    """A blocking connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.sock = socket.create_connection(address, timeout=_PATIENCE)

    def call(self, request: Request[Any], version: int) -> Any:
        """Send a request and return its answer."""
        self.sock.sendall(frame(request, version))
        size = int.from_bytes(self._exactly(4), "big")
        return decode_response(request.response_type, self._exactly(size), version=version)[1]

    def send(self, head: bytes, total: int, filler: bytes = b"\xff") -> bool:
        """Send ``head`` and then filler, ``total`` bytes in all; False if the broker closed the connection."""
        piece = filler * (_PIECE // len(filler))
        try:
            self.sock.sendall(head)
            left = total - len(head)
            while left > 0:
                self.sock.sendall(piece[:left])
                left -= len(piece)
        except OSError:
            return False
        return True

    def answered_or_closed(self) -> None:
        """Wait until the broker responds, or closes the connection."""
        try:
            self.sock.recv(1 << 16)
        except OSError:
            return

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            got = self.sock.recv(size - len(data))
            if not got:
                raise ConnectionResetError("closed by the broker")
            data += got
        return bytes(data)


class Watch(threading.Thread):
    """Reads the resident memory of a process until `stop`."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._end = threading.Event()
        self.peak = 0
        self.start()

    def run(self) -> None:
        """Read it every few milliseconds."""
        while not self._end.wait(0.005):
            self.peak = max(self.peak, resident_bytes(self._pid))

    def stop(self) -> int:
        """Stop, and return the maximum."""
        self._end.set()
        self.join()
        return self.peak


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class GoodClient:
    """A process that alternately produces and fetches small batches; prints the duration of each round at the end."""

    def __init__(self, address: tuple[str, int]) -> None:
        command = [sys.executable, "-m", "tests.hostile.memory", address[0], str(address[1])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def stop(self) -> list[float]:
        """End the process, and return the seconds of each round, sorted."""
        output, _ = self._process.communicate(timeout=_PATIENCE)
        assert self._process.returncode == 0, "the good client failed"
        return sorted(map(float, output.split()))


def good_rounds(address: tuple[str, int], continues: Callable[[], bool]) -> list[float]:
    """Produce and fetch in a loop; return the seconds of each round."""
    peer = Peer(address)
    records = bytes(encode_batch([(time.time_ns() // 1_000_000, None, b"v" * 100, ())]))
    data = [TopicProduceData(name="good", partition_data=[PartitionProduceData(index=0, records=records)])]
    found = []
    while continues():
        start = time.perf_counter()
        answer = peer.call(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 9)
        appended = answer.responses[0].partition_responses[0]
        assert appended.error_code == 0, appended
        fetched = [FetchPartition(partition=0, fetch_offset=appended.base_offset, partition_max_bytes=10_000)]
        topics = [FetchTopic(topic="good", partitions=fetched)]
        answer = peer.call(FetchRequest(max_bytes=10_000, max_wait_ms=100, min_bytes=1, topics=topics), 11)
        assert answer.responses[0].partitions[0].records, answer
        found.append(time.perf_counter() - start)
        time.sleep(0.005)
    peer.close()
    return found


Attack = Callable[[tuple[str, int], Scale], None]


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Run ``work`` in several threads, and wait for all."""
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def sent_by_each(count: int, make: Callable[[Scale], tuple[bytes, bytes]]) -> Attack:
    """Clients that send frames of the maximum size at the same time: a start, and filler for the rest."""

    def attack(address: tuple[str, int], scale: Scale) -> None:
        head, filler = make(scale)

        def one(number: int) -> None:
            peer = Peer(address)
            if peer.send(struct.pack(">i", scale.frame_bytes) + head, scale.frame_bytes + 4, filler):
                peer.answered_or_closed()
            peer.close()

        at_once(count, one)

    return attack


def one_after_the_other(count: int, make: Callable[[Scale], tuple[bytes, bytes]]) -> Attack:
    """Do the same as `sent_by_each`, one client after the other."""
    single = sent_by_each(1, make)

    def attack(address: tuple[str, int], scale: Scale) -> None:
        for _ in range(count):
            single(address, scale)

    return attack


def malformed_produce(scale: Scale) -> tuple[bytes, bytes]:
    """Return a Produce request whose only batch is cut off by the bytes behind it."""
    return frame(ProduceRequest(acks=1, timeout_ms=1000), 9)[4:] + b"\x05", b"\xff"


def many_partitions(scale: Scale) -> tuple[bytes, bytes]:
    """Return a Produce request (v3) with as many partitions without records as fit."""
    head = struct.pack(">hhih", 0, 3, 7, 1) + b"s" + struct.pack(">hhii", -1, 1, 1000, 1)
    head += struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">i", (scale.frame_bytes - 60) // 8)
    return head, struct.pack(">ii", 0, -1)


def well_formed_produce(scale: Scale) -> tuple[bytes, bytes]:
    """Return a Produce request with one batch, as large as the frame."""
    start = struct.pack(">hhih", 0, 3, 7, 1) + b"s" + struct.pack(">hhii", -1, 1, 1000, 1)
    start += struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">ii", 1, 0)
    size = scale.frame_bytes - len(start) - 4
    batch = bytearray(encode_batch([(0, None, b"v", ())]))
    batch[8:12] = struct.pack(">i", size - 12)
    return start + struct.pack(">i", size) + bytes(batch), b"\0"


def huge_metadata(scale: Scale) -> tuple[bytes, bytes]:
    """Return a Metadata request with as many short names as fit."""
    count = (scale.frame_bytes - 20) // 3
    return struct.pack(">hhih", 3, 1, 7, 1) + b"s" + struct.pack(">i", count), b"\0\1a"


def huge_create_topics(scale: Scale) -> tuple[bytes, bytes]:
    """Return a CreateTopics request with as many topics as fit."""
    count = (scale.frame_bytes - 30) // 17
    one = struct.pack(">h", 1) + b"a" + struct.pack(">ihii", 1, 1, 0, 0)
    return struct.pack(">hhih", 19, 2, 7, 1) + b"s" + struct.pack(">i", count), one


def wide_text(scale: Scale) -> tuple[bytes, bytes]:
    """Return a Metadata request with long names, each with one character that makes the whole string wide."""
    name = "a" * 30_000 + "\U0001f600"
    one = struct.pack(">h", len(name.encode())) + name.encode()
    count = (scale.frame_bytes - 20) // len(one)
    return struct.pack(">hhih", 3, 1, 7, 1) + b"s" + struct.pack(">i", count), one


def bombs(codec: str, count: int) -> Attack:
    """Clients that send small batches with a very large decompressed size at the same time."""

    def attack(address: tuple[str, int], scale: Scale) -> None:
        packed = bomb(codec, scale.expanded_bytes)

        def one(number: int) -> None:
            peer = Peer(address)
            if peer.send(packed, len(packed)):
                peer.answered_or_closed()
            peer.close()

        at_once(count, one)

    return attack


def bomb(codec: str, size: int) -> bytes:
    """Return a Produce request whose batch has one record of ``size`` zeros, or fewer if they do not fit into 1 MB."""
    if codec == "lz4":
        size = min(size, 200_000_000)
    elif codec == "snappy":
        size = min(size, 18_000_000)  # it compresses to a twentieth at most
    return produce_frame(bytes(encode_batch([(0, None, bytes(size), ())], compression=codec)))


def slow_drips(count: int) -> Attack:
    """Clients that announce the largest frame, send a part of it and then single bytes."""

    def attack(address: tuple[str, int], scale: Scale) -> None:
        end = time.monotonic() + scale.seconds
        peers = []
        for number in range(count):
            peer = Peer(address)
            part = (100, 100_000, 900_000, 5_000_000)[number % 4]
            head = struct.pack(">ihhih", scale.frame_bytes, 0, 9, 7, -1)
            peer.sock.settimeout(0.2)
            peer.send(head, min(part, scale.frame_bytes // 2))
            peers.append(peer)
        while time.monotonic() < end:
            for peer in peers:
                peer.send(b"\0", 1)
            time.sleep(0.2)
        for peer in peers:
            peer.close()

    return attack


def unread_fetches(count: int) -> Attack:
    """Clients that fetch large responses and never read them."""

    def attack(address: tuple[str, int], scale: Scale) -> None:
        filler = produce_frame(bytes(encode_batch([(time.time_ns() // 1_000_000, None, os.urandom(900_000), ())])))
        peer = Peer(address)
        for _ in range(max(scale.frame_bytes // 2_000_000, 2)):
            peer.send(filler, len(filler))
            peer.answered_or_closed()
        fetched = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=scale.frame_bytes)]
        topics = [FetchTopic(topic=TOPIC, partitions=fetched)]
        request = frame(FetchRequest(max_bytes=scale.frame_bytes, max_wait_ms=0, min_bytes=1, topics=topics), 11)
        _ask_and_wait(address, request, count, scale)

    return attack


def unread_metadata(count: int) -> Attack:
    """Clients that request the metadata of many topics and never read the responses."""

    def attack(address: tuple[str, int], scale: Scale) -> None:
        peer = Peer(address)
        topics = [CreatableTopic(name=f"many-{n}", num_partitions=100, replication_factor=1) for n in range(20)]
        peer.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
        _ask_and_wait(address, frame(MetadataRequest(topics=None), 9), count * 4, scale)

    return attack


def _ask_and_wait(address: tuple[str, int], request: bytes, count: int, scale: Scale) -> None:
    peers = [Peer(address) for _ in range(count)]
    for peer in peers:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.send(request, len(request))
    time.sleep(scale.seconds)
    for peer in peers:
        peer.close()


def moderate(count: int, size: int) -> Attack:
    """Many connections, each with an incomplete frame of moderate size."""

    def attack(address: tuple[str, int], scale: Scale) -> None:
        peers = []
        for _ in range(count):
            peer = Peer(address)
            peer.sock.settimeout(0.05)
            peer.send(struct.pack(">ihhih", size + 100, 0, 9, 7, -1), size)
            peers.append(peer)
        time.sleep(scale.seconds)
        for peer in peers:
            peer.close()

    return attack


def large_members(count: int) -> Attack:
    """Clients that join groups with very large subscriptions, and leave."""

    def make(scale: Scale) -> tuple[bytes, bytes]:
        # JoinGroup v0: group, session timeout, member, protocol type, one protocol with its metadata.
        head = struct.pack(">hhih", 11, 0, 7, 1) + b"s" + struct.pack(">h", 1) + b"g" + struct.pack(">ih", 10_000, 0)
        head += struct.pack(">h", 8) + b"consumer" + struct.pack(">ih", 1, 5) + b"range"
        return head + struct.pack(">i", scale.frame_bytes - len(head) - 4), b"m"

    return sent_by_each(count, make)


def cases(scale: Scale) -> list[tuple[str, Attack]]:
    """Return the cases by name."""
    few, many, frame_mb = scale.few, scale.many, scale.frame_bytes // 1_000_000
    expanded = scale.expanded_bytes // 1_000_000
    return [
        ("none", lambda address, scale: time.sleep(scale.seconds)),
        (f"{few} malformed {frame_mb} MB Produce", one_after_the_other(few, malformed_produce)),
        (f"{few * 4} malformed {frame_mb} MB Produce", one_after_the_other(few * 4, malformed_produce)),
        *(
            (f"{few * 3} {codec} batches that expand to {expanded} MB", bombs(codec, few * 3))
            for codec in ("zstd", "lz4", "gzip", "snappy")
        ),
        (f"{many} well-formed {frame_mb} MB Produce at once", sent_by_each(many, well_formed_produce)),
        (f"{many} malformed {frame_mb} MB Produce at once", sent_by_each(many, malformed_produce)),
        (f"{few} {frame_mb} MB Produce of empty partitions at once", sent_by_each(few, many_partitions)),
        (f"{many} {frame_mb} MB Metadata at once", sent_by_each(many, huge_metadata)),
        (f"{many} {frame_mb} MB CreateTopics at once", sent_by_each(many, huge_create_topics)),
        (f"{few} {frame_mb} MB Metadata of wide text at once", sent_by_each(few, wide_text)),
        (f"{few} {frame_mb} MB JoinGroup at once", large_members(few)),
        (f"{many} slow drips of {frame_mb} MB", slow_drips(many)),
        (f"{many} unread Fetch answers of {frame_mb // 2} MB", unread_fetches(many)),
        (f"{many * 4} connections with unread metadata answers", unread_metadata(many)),
        (f"{many * 6} connections with unfinished 900 KB requests", moderate(many * 6, 900_000)),
        (f"{many * 20} connections with unfinished 60 KB requests", moderate(many * 20, 60_000)),
    ]


def run_case(attack: Attack, scale: Scale) -> tuple[int, int, int, float]:
    """Run a case; return memory at rest, at the maximum and afterwards, and the good client's 99th percentile in
    seconds.
    """
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory), discards_log=True)
        try:
            host, _, port = broker.start().partition(":")
            address = host, int(port)
            peer = Peer(address)
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("good", TOPIC)]
            peer.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
            peer.close()
            _some_good_rounds(address, 100)
            before = resident_bytes(broker.pid)
            watch, client = Watch(broker.pid), GoodClient(address)
            try:
                attack(address, scale)
            finally:
                seconds = client.stop()
                peak = watch.stop()
            _some_good_rounds(address, 500)
            return before, peak, resident_bytes(broker.pid), seconds[int(0.99 * (len(seconds) - 1))]
        finally:
            broker.close()


def _some_good_rounds(address: tuple[str, int], count: int) -> None:
    rounds = iter(range(count))
    good_rounds(address, lambda: next(rounds, None) is not None)


def measure(scale: Scale | None = None, only: str = "") -> Iterator[Row]:
    """Run the cases whose name contains ``only``."""
    scale = Scale() if scale is None else scale
    for name, attack in cases(scale):
        if only not in name:
            continue
        before, peak, after, p99 = run_case(attack, scale)
        yield Row("memory", f"{name}: most", f"{peak >> 20} MiB ({before >> 20} at rest)", "512 MiB", peak < PEAK_LIMIT)
        left = after - before
        yield Row("memory", f"{name}: kept afterwards", f"{left >> 20} MiB", "64 MiB", left < LEFT_LIMIT)
        yield Row("memory", f"{name}: good client's p99", f"{p99 * 1000:.0f} ms", "100 ms", p99 < P99_LIMIT)


def main(host: str, port: str) -> None:
    """Run the good client until standard input ends."""
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    print("ready", flush=True)
    print(*good_rounds((host, int(port)), lambda: not ended.is_set()))


if __name__ == "__main__":
    main(*sys.argv[1:])
