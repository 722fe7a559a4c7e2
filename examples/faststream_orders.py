"""FastStream over `triokafka.asyncio`: call `install_as_aiokafka` before the first import of ``faststream.kafka``.

Run it with ``triokafka broker --in-memory`` beside it:

    python examples/faststream_orders.py [HOST:PORT]
"""

from __future__ import annotations

import asyncio
import sys

from triokafka.asyncio.as_aiokafka import install_as_aiokafka

install_as_aiokafka()

from aiokafka.errors import ConsumerStoppedError  # noqa: E402
from faststream import FastStream  # noqa: E402
from faststream.kafka import KafkaBroker  # noqa: E402

from triokafka.errors import ClosedError  # noqa: E402

broker = KafkaBroker(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
app = FastStream(broker)
enough = asyncio.Event()


@broker.subscriber("orders", group_id="kitchen", auto_offset_reset="earliest")
@broker.publisher("dishes")
async def cook(order: str) -> str:
    """Turn an order into a dish."""
    return f"{order}, cooked"


@broker.subscriber("dishes", group_id="waiters", auto_offset_reset="earliest")
async def serve(dish: str) -> None:
    """Serve a dish."""
    print(dish, flush=True)
    enough.set()


@app.after_startup
async def order() -> None:
    """Send an order, and stop the application when its dish was served."""
    await broker.publish("two pizzas", "orders")
    await enough.wait()
    app.exit()


if __name__ == "__main__":
    try:
        asyncio.run(app.run())
    except (ConsumerStoppedError, ClosedError):  # Ctrl-C during the start
        sys.exit(130)
