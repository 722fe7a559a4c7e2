"""Avro with a schema registry, for plain producers and consumers. The bytes are those of other clients' serializers.

The producer registers its schema and writes the registry's envelope: a zero byte, the schema id in four bytes, the
value. The consumer decodes with the schema that the record names, so that producers can move to a newer one. Needs
triokafka[formats].

python examples/schema_registry.py localhost:9092 orders http://localhost:8081
"""

from __future__ import annotations

import io
import json
import struct
import sys
from typing import Any

import fastavro
import trio

import triokafka
from triokafka.formats import SchemaRegistry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "table", "type": "int"}, {"name": "dish", "type": "string"}],
}
ENVELOPE = struct.Struct(">bI")


class AvroWriter:
    """A serializer: turns a dictionary into an enveloped Avro value."""

    def __init__(self, schema: dict[str, Any], schema_id: int) -> None:
        self._schema = fastavro.parse_schema(schema)
        self._envelope = ENVELOPE.pack(0, schema_id)

    def __call__(self, value: dict[str, Any]) -> bytes:
        written = io.BytesIO(self._envelope)
        written.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(written, self._schema, value)
        return written.getvalue()


class AvroReader:
    """Turns an enveloped value into a dictionary, with the writer's schema, which is fetched once."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._schemas: dict[int, Any] = {}

    async def read(self, value: bytes) -> Any:
        """Return the decoded value. The registry's client blocks, so it works in a thread."""
        magic, schema_id = ENVELOPE.unpack_from(value)
        if magic != 0:
            raise ValueError(f"no schema registry has written {value!r}")
        if schema_id not in self._schemas:
            schema = await trio.to_thread.run_sync(self._registry.by_id, schema_id)
            self._schemas[schema_id] = fastavro.parse_schema(json.loads(schema.text))
        return fastavro.schemaless_reader(io.BytesIO(value[ENVELOPE.size :]), self._schemas[schema_id], None)


async def main(
    bootstrap_servers: str = "localhost:9092", topic: str = "orders", url: str = "http://localhost:8081"
) -> None:
    """Send three orders and read them back."""
    registry = SchemaRegistry(url)
    schema = await trio.to_thread.run_sync(registry.register, f"{topic}-value", json.dumps(ORDER))
    async with triokafka.Producer(
        bootstrap_servers=bootstrap_servers, value_serializer=AvroWriter(ORDER, schema.id)
    ) as producer:
        for table, dish in enumerate(["soup", "dumplings", "tea"], 1):
            await producer.send(topic, {"table": table, "dish": dish}, key=b"today")
    reader = AvroReader(registry)
    read = 0
    async with triokafka.Consumer(
        topic, bootstrap_servers=bootstrap_servers, group_id="kitchen", auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            print("schema", schema.id, await reader.read(record.value or b""))
            read += 1
            if read == 3:
                break


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
