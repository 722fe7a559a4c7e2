"""Graceful shutdown: SIGTERM and Ctrl-C let the program finish its record, commit, leave the group and send everything.

Kubernetes sends SIGTERM and waits 30 seconds. The handler cancels only the wait for the next record: the record in
work is finished. Leaving the blocks then commits, leaves the group (the other members take over at once instead of
after ``session_timeout_ms``), and sends what the producer has accepted.

python examples/graceful_shutdown.py localhost:9092 orders
"""

from __future__ import annotations

import signal
import sys

import trio

import triokafka


async def cancel_on_signal(waiting: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    """Cancel the scope when the process is asked to end."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            print(f"stopping after {signal.Signals(number).name}", flush=True)
            waiting.cancel()


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders") -> None:
    """Send a receipt for every order until the process is asked to end."""
    handled = 0
    async with trio.open_nursery() as nursery:
        waiting = trio.CancelScope()
        await nursery.start(cancel_on_signal, waiting)
        async with (
            triokafka.Producer(bootstrap_servers=bootstrap_servers) as producer,
            triokafka.Consumer(
                topic, bootstrap_servers=bootstrap_servers, group_id="receipts", auto_offset_reset="earliest"
            ) as consumer,
        ):
            with waiting:
                async for record in consumer:
                    with trio.CancelScope(shield=True):  # a record that has begun is finished
                        await producer.send(f"{topic}-receipts", b"thanks for " + (record.value or b"nothing"))
                    handled += 1
                    print("handled", record.offset, flush=True)
        print(f"{handled} orders handled, receipts sent, group left", flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
