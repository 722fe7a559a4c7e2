"""Requests that no well-behaved client sends: duplicate, negative, empty, unknown, too many items.

``data/odd_requests.json`` is the table, one request per line, with our broker's response and, where it differs, that of
Apache Kafka 4.3 with the reason. The same requests are sent to both. A response is summarized as the error codes of its
parts and some values that show the effect; ``closed`` stands for no response. ``data/odd_frames.json`` has invalid
frames, byte by byte, and only whether the broker responds.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import trio

from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request, Struct, StructMeta
from triokafka.records import encode_batch
from triokafka.world import Stream
from triokafka.world.system import RealWorld

_ZERO: Final = UUID(int=0)
_UNKNOWN: Final = UUID(int=99)
_DATA: Final = Path(__file__).parents[1] / "data"
_NAMES: Final = (
    "resource_type", "resource_name", "name", "topic", "topic_name", "group_id", "key", "feature", "transactional_id",
    "entity_type", "entity_name", "partition_index", "partition", "partition_id", "index",
)  # fmt: skip
_VALUES: Final = ("offset", "low_watermark", "end_offset", "committed_offset", "high_watermark", "committed_metadata")
_UNTOLD: Final = {"brokers", "node_endpoints", "configs", "api_keys", "nodes", "current_voters", "observers"}
_PATIENCE: Final = 10


def build(cls: Any, values: Mapping[str, Any]) -> Any:
    """Return a structure whose nested parts are given as dicts."""
    made = cls()
    fields = {field.name: field for field in cls.__fields__}
    for name, value in values.items():
        kind = fields[name].type
        inner = kind.element if fields[name].is_array else kind
        if isinstance(inner, StructMeta):
            if isinstance(value, list):
                value = [build(inner, item) for item in value]
            elif value is not None:
                value = build(inner, value)
        setattr(made, name, value)
    return made


def request(api: str, values: Mapping[str, Any]) -> Request[Any]:
    """Return a request by the name of its module."""
    module = importlib.import_module(f"triokafka.protocol.api.{api}")
    name = "".join(part.capitalize() for part in api.split("_")) + "Request"
    made: Request[Any] = build(getattr(module, name), values)
    return made


def summary(response: Struct, topic_ids: Mapping[UUID, str]) -> str:
    """Return error codes and significant values of a response, by the item they belong to."""
    # Kafka builds many of its responses in the order of a hash table.
    return " ".join(sorted(_parts(response, "", topic_ids))) or "0"


def _parts(struct: Any, label: str, topic_ids: Mapping[UUID, str]) -> Iterator[str]:
    values = {field.name: getattr(struct, field.name) for field in type(struct).__fields__}
    own = [str(values[name]) for name in _NAMES if name in values and values[name] != ""]
    topic_id = values.get("topic_id")
    if topic_id in topic_ids and not own:
        own = [topic_ids[topic_id]]  # type: ignore[index]
    label = "/".join([label, *own] if label else own)
    found = [f"{name}={values[name]}" for name in _VALUES if values.get(name) not in (None, -1, "")]
    if values.get("records"):
        found.append("data")
    if values.get("error_code") or ("error_code" in values and label):
        found.insert(0, str(values["error_code"]))
    if found:
        yield f"{label}:{','.join(found)}"
    inside = False
    for name, value in values.items():
        if name not in _UNTOLD and isinstance(value, list) and value and isinstance(value[0], Struct):
            inside = True
            for item in value:
                yield from _parts(item, label, topic_ids)
    if label and not found and not inside:
        yield label


class Asker:
    """A connection that is opened again after the broker has closed it."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        self._address = host, int(port)
        self._world = RealWorld()
        self._stream: Stream | None = None

    async def ask(self, frame: bytes) -> bytes | None:
        """Send a frame and wait for one; None if the broker closes."""
        if self._stream is None:
            self._stream = await self._world.connect(*self._address)
        try:
            await self._stream.send(frame)
            size = await self._exactly(self._stream, 4)
            answer = await self._exactly(self._stream, int.from_bytes(size, "big"))
        except (OSError, EOFError):
            self.close()
            return None
        return answer

    async def call(self, asked: Request[Any], version: int) -> Any:
        """Send a request; return the response, or None if the broker closes."""
        frame = b"".join(encode_request(asked, version=version, correlation_id=1, client_id="odd"))
        answer = await self.ask(frame)
        return None if answer is None else decode_response(asked.response_type, answer, version=version)[1]

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    @staticmethod
    async def _exactly(stream: Stream, size: int) -> bytes:
        data = bytearray(size)
        got = 0
        while got < size:
            received = await stream.receive_into(memoryview(data)[got:])
            if not received:
                raise EOFError
            got += received
        return bytes(data)


def table() -> list[dict[str, Any]]:
    """Return the rows with requests."""
    rows: list[dict[str, Any]] = json.loads((_DATA / "odd_requests.json").read_text())
    return rows


def frames() -> list[dict[str, Any]]:
    """Return the rows with frames."""
    rows: list[dict[str, Any]] = json.loads((_DATA / "odd_frames.json").read_text())
    return rows


def expected(rows: Sequence[Mapping[str, Any]], *, of_kafka: bool = False) -> dict[str, str]:
    """Return the expected responses, of our broker or Apache Kafka."""
    return {row["case"]: row["kafka"] if of_kafka and "kafka" in row else row["answer"] for row in rows}


async def answered_frames(bootstrap: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return for each frame whether the broker responds with its correlation id; it must close for all others."""
    asker = Asker(bootstrap)
    found: dict[str, str] = {}
    for row in rows:
        frame = bytes.fromhex(row["frame"])
        with trio.move_on_after(_PATIENCE) as waited:
            answer = await asker.ask(len(frame).to_bytes(4, "big") + frame)
            same = answer is not None and answer[:4] == frame[4:8]
            found[row["case"]] = "closed" if answer is None else "answered" if same else "answered something else"
        if waited.cancelled_caught:
            found[row["case"]] = "silence"
            asker.close()
    asker.close()
    return found


async def answers(bootstrap: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Send all requests one after the other, and return the responses."""
    asker = Asker(bootstrap)
    try:
        ids = {"0": _ZERO, "unknown": _UNKNOWN, **await _prepare(asker)}
        names = {topic_id: name for name, topic_id in ids.items()} | {_ZERO: "id-0", _UNKNOWN: "id-unknown"}
        found: dict[str, str] = {}
        for row in rows:
            name = row["case"]
            with trio.move_on_after(_PATIENCE) as waited:
                answer = await asker.call(request(row["api"], _with_ids(row["request"], ids)), row["version"])
                found[name] = "closed" if answer is None else summary(answer, names)
            if waited.cancelled_caught:
                found[name] = "silence"
                asker.close()
        return found
    finally:
        asker.close()


def _with_ids(value: Any, ids: Mapping[str, UUID]) -> Any:
    """Replace ``id:NAME`` by topic ids."""
    if isinstance(value, Mapping):
        return {key: _with_ids(item, ids) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_ids(item, ids) for item in value]
    if isinstance(value, str) and value.startswith("id:"):
        return ids[value.removeprefix("id:")]
    return value


async def _prepare(asker: Asker) -> dict[str, UUID]:
    """Create two topics with records, a compacted one, and a group with an offset."""
    topics = [
        {"name": "t", "num_partitions": 2, "replication_factor": 1},
        {"name": "u", "num_partitions": 1, "replication_factor": 1},
        {
            "name": "c",
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "cleanup.policy", "value": "compact"}],
        },
    ]
    made = await asker.call(request("create_topics", {"topics": topics, "timeout_ms": 10_000}), 7)
    assert [topic.error_code for topic in made.topics] == [0, 0, 0]
    records = bytes(encode_batch([(1_700_000_000_000 + i, b"k", b"v", ()) for i in range(3)]))
    data = [{"name": name, "partition_data": [{"index": 0, "records": records}]} for name in ("t", "c")]
    commit = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
    }
    with trio.fail_after(60):
        await _until_done(asker, "produce", 9, {"acks": -1, "timeout_ms": 10_000, "topic_data": data})
        await _until_done(asker, "find_coordinator", 4, {"coordinator_keys": ["g"]})
        await _until_done(asker, "offset_commit", 8, commit)
        await _until_done(asker, "init_producer_id", 5, {"transactional_id": None, "transaction_timeout_ms": 1000})
    return {topic.name: topic.topic_id for topic in made.topics}


async def _until_done(asker: Asker, api: str, version: int, values: Mapping[str, Any]) -> None:
    """Repeat a request until it succeeds: Kafka's brokers learn of new topics, and of the groups that they coordinate,
    after a while.
    """
    while True:
        summarized = summary(await asker.call(request(api, values), version), {})
        if all(part.rpartition(":")[2].partition(",")[0] == "0" for part in summarized.split() if ":" in part):
            return
        await trio.sleep(0.1)
