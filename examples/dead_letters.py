"""Retries and dead letters: a record that cannot be handled does not stop the partition, and is not lost.

A record is tried again after a growing pause. After the last try it goes to ``<topic>-dead-letters`` with the reason,
its origin and the number of tries in its headers. The offset is committed after the broker has acknowledged the dead
letter, so a crash repeats a record and loses none.

python examples/dead_letters.py localhost:9092 orders
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import trio

import triokafka
from triokafka import ConsumerRecord

TRIES = 3
FIRST_PAUSE = 0.05
"""Seconds before the second try; each further pause is twice as long. Keep the sum below ``max_poll_interval_ms``."""


class InvalidOrderError(Exception):
    """The record can never be handled; trying again does not help."""


class DeadLetters:
    """Handles records with retries, and sends those that fail to the topic of dead letters."""

    def __init__(self, producer: triokafka.Producer, handle: Callable[[ConsumerRecord], object]) -> None:
        self._producer = producer
        self._handle = handle

    async def process(self, record: ConsumerRecord) -> bool:
        """Handle a record; return False if it became a dead letter. Returns after the acknowledgement."""
        tried = 0
        while True:
            tried += 1
            try:
                self._handle(record)
                return True
            except Exception as error:
                if tried == TRIES or isinstance(error, InvalidOrderError):
                    await self._bury(record, error, tried)
                    return False
            await trio.sleep(FIRST_PAUSE * 2 ** (tried - 1))

    async def _bury(self, record: ConsumerRecord, error: Exception, tried: int) -> None:
        reasons = {
            "error": f"{type(error).__name__}: {error}",
            "tries": str(tried),
            "origin": f"{record.topic}-{record.partition}@{record.offset}",
        }
        headers = [*record.headers, *((name, text.encode()) for name, text in reasons.items())]
        delivery = await self._producer.send(
            f"{record.topic}-dead-letters", record.value, key=record.key, headers=headers
        )
        await delivery


_failed_before: set[int] = set()


def handle(record: ConsumerRecord) -> None:
    """Stands for your work: an order is a whole number of euros, and every tenth order fails once."""
    value = record.value or b""
    if not value.isdigit():
        raise InvalidOrderError(f"{value!r} is no amount")
    if record.offset % 10 == 0 and record.offset not in _failed_before:
        _failed_before.add(record.offset)
        raise TimeoutError("the cash desk does not answer")
    if int(value) == 0:
        raise ValueError("nobody pays nothing")
    print("handled", value.decode())


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders", limit: str = "") -> None:
    """Handle records until cancelled, or until ``limit`` records."""
    seen = 0
    async with (
        triokafka.Producer(bootstrap_servers=bootstrap_servers) as producer,
        triokafka.Consumer(
            topic, bootstrap_servers=bootstrap_servers, group_id="orders-with-retries", auto_offset_reset="earliest"
        ) as consumer,
    ):
        letters = DeadLetters(producer, handle)
        async for record in consumer:  # a record is finished, and may be committed, when the loop asks for the next one
            if not await letters.process(record):
                print("dead letter", record.offset)
            seen += 1
            if limit and seen >= int(limit):
                break


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
