"""Takes the pictures of ``docs/console.md``: ``python -m docs.console_pictures``. Needs a Chromium.

It runs three nodes in this process with orders, payments and a group that rebalances, serves a console, and writes
``docs/console/*.webp``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import trio

import triokafka
from tests.support.browser import Page, browser
from tests.support.console_server import served_console
from triokafka.console.limits import ConsoleLimits
from triokafka.testing import running_cluster

FOLDER: Final = Path(__file__).parent / "console"
_SECONDS: Final = 40


async def _traffic(client: dict[str, Any], nursery: trio.Nursery) -> None:
    async with triokafka.AdminClient(**client) as admin:
        topics = [("orders", 6), ("payments", 3), ("shipments", 3), ("audit.log", 1)]
        await admin.create_topics([triokafka.NewTopic(name, partitions, 3) for name, partitions in topics])

    async def produce() -> None:
        async with triokafka.Producer(**client) as producer:
            for number in range(1_000_000):
                order = {"id": number, "table": number % 12, "items": ["two coffees", "a cake"], "total": 12.5}
                headers = [("till", b"%d" % (number % 3))]
                await producer.send(
                    "orders", json.dumps(order).encode(), key=b"table %d" % (number % 12), headers=headers
                )
                if number % 3 == 0:
                    await producer.send("payments", b"paid %d" % number)
                await trio.sleep(0.01 + 0.02 * (number % 400 < 200))

    async def consume(name: str, seconds: float) -> None:
        with trio.move_on_after(seconds):
            async with triokafka.Consumer(
                "orders", "payments", group_id="billing", client_id=name, auto_offset_reset="earliest", **client
            ) as consumer:
                while True:
                    await consumer.poll(timeout_ms=200, max_records=20)
                    await trio.sleep(0.3)

    nursery.start_soon(produce)
    nursery.start_soon(consume, "till-a", 1_000)
    await trio.sleep(_SECONDS / 4)
    nursery.start_soon(consume, "till-b", _SECONDS / 4)
    nursery.start_soon(consume, "till-c", 1_000)
    await trio.sleep(_SECONDS / 2)


async def _take(page: Page, url: str, path: str, name: str, width: int, height: int, *, dark: bool = False) -> None:
    await page.look(width, dark=dark, height=height)
    await page.open(f"{url}#/{path}")
    await page.wait_for("document.querySelector('main h1') && document.querySelector('main table, main .chart')")
    await page.run("document.querySelector('main details')?.setAttribute('open', '')")
    await page.screenshot(FOLDER / f"{name}.webp", whole=False)


async def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    limits = ConsoleLimits(sample_interval_ms=1_000)
    async with running_cluster(nodes=3) as cluster, trio.open_nursery() as nursery:
        client: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
        async with served_console(client, target=cluster, limits=limits) as url, browser() as page:
            await page.open(f"{url}#/groups/billing")
            await _traffic(client, nursery)
            await _take(page, url, "topics/orders/messages", "messages", 1100, 760)
            await _take(page, url, "groups/billing", "group", 1100, 900, dark=True)
            await _take(page, url, "metrics", "metrics", 1100, 900)
            await _take(page, url, "faults", "faults", 1100, 760, dark=True)
            await _take(page, url, "topics/orders/messages", "phone", 360, 760)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
