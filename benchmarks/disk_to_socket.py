"""The rate at which a leader sends a partition's log to one connection: the bound of a follower that catches up.

One fetch is on its way at a time, with the sizes of a follower's fetches. The records are received into a buffer that
is used again, and only the headers of their batches are read.
"""

from __future__ import annotations

import socket
import time
from typing import Final

from triokafka.broker_stub.replica.fetcher.fetcher_config import FetcherConfig
from triokafka.cli.load.brokers import MeasurementError
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.records import iter_batches

__all__ = ["megabytes_per_second"]

_VERSION: Final = 12
"""The last one that names topics."""
_TIMEOUT: Final = 60.0
_SIZE_BYTES: Final = 4


def megabytes_per_second(address: str, topic: str, records: int) -> float:
    """Fetch partition 0 of a topic from its leader, from offset 0 to ``records``; return millions of bytes a second.

    Raises:
        MeasurementError: the leader answered with an error or without records, or closed the connection.
        OSError: the connection failed.
    """
    sizes = FetcherConfig()
    room = memoryview(bytearray(_SIZE_BYTES + sizes.fetch_response_max_bytes))
    host, _, port = address.rpartition(":")
    offset = received = 0
    with socket.create_connection((host, int(port)), _TIMEOUT) as connection:
        began = time.perf_counter()
        while offset < records:
            request = FetchRequest(
                max_wait_ms=sizes.fetch_wait_max_ms,
                min_bytes=sizes.fetch_min_bytes,
                max_bytes=sizes.fetch_response_max_bytes,
                topics=[
                    FetchTopic(
                        topic=topic,
                        partitions=[
                            FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=sizes.fetch_max_bytes)
                        ],
                    )
                ],
            )
            connection.sendall(b"".join(encode_request(request, version=_VERSION, correlation_id=1, client_id="raw")))
            _receive(connection, room[:_SIZE_BYTES])
            frame = room[_SIZE_BYTES : _SIZE_BYTES + int.from_bytes(room[:_SIZE_BYTES], "big")]
            _receive(connection, frame)
            data = decode_response(FetchResponse, frame, version=_VERSION)[1].responses[0].partitions[0]
            if data.error_code or not data.records:
                raise MeasurementError(f"fetching {topic} from offset {offset}: error {data.error_code}, no records")
            for batch in iter_batches(data.records):
                offset = batch.next_offset
            received += len(data.records)
        return received / 1_000_000 / (time.perf_counter() - began)


def _receive(connection: socket.socket, room: memoryview) -> None:
    """Fill the room."""
    while room:
        got = connection.recv_into(room)
        if not got:
            raise MeasurementError("the leader closed the connection of a fetch")
        room = room[got:]
