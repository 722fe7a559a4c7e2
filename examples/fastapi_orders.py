"""A FastAPI service that sends orders to Kafka and reads them back; it stops without losing one.

The producer and the consumer live as long as the application (its lifespan). On SIGTERM the server finishes its
requests first; then the lifespan ends: the consumer commits what was handled and leaves its group, and the producer
sends what it has accepted. Run it with an ASGI server, and with ``triokafka broker --in-memory`` beside it:

    uvicorn examples.fastapi_orders:app    (examples/fastapi_orders.py)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, HTTPException

from triokafka.asyncio import AIOKafkaConsumer, AIOKafkaProducer
from triokafka.asyncio.errors import KafkaError

BOOTSTRAP = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
TOPIC = os.environ.get("ORDERS_TOPIC", "orders")


async def handle_orders(consumer: AIOKafkaConsumer, seen: list[str]) -> None:
    """Handle one order after the other; commit each when it is handled."""
    async for record in consumer:
        seen.append((record.value or b"").decode())
        await consumer.commit()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Hold the clients open while the application runs."""
    app.state.seen = []
    async with (
        AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True) as app.state.producer,
        AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=BOOTSTRAP,
            group_id=f"{TOPIC}-service",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        handling = asyncio.create_task(handle_orders(consumer, app.state.seen))
        try:
            yield
        finally:
            handling.cancel()
            with suppress(asyncio.CancelledError):
                await handling


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{table}")
async def order(table: int, dish: str) -> dict[str, int]:
    """Send an order; answer when the broker has it."""
    try:
        metadata = await app.state.producer.send_and_wait(TOPIC, dish.encode(), key=str(table).encode())
    except KafkaError as error:
        raise HTTPException(503, f"the order was not accepted: {error}") from error
    return {"partition": metadata.partition, "offset": metadata.offset}


@app.get("/orders")
async def orders() -> list[str]:
    """Return the orders that were handled."""
    handled: list[str] = app.state.seen
    return handled
