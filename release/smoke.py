"""Runs in a clean environment after the installation of one package, without the checkout.

``python -I smoke.py compiled|plain`` imports the package, starts a broker in memory, sends a record through producer
and consumer, and does the same with the command line and a broker process. It prints one line; a failure is a
traceback.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import trio

import triokafka
from triokafka.testing import running_broker

MODULES = ("asyncio", "blocking", "broker_stub.node", "cli.app", "client", "mirror", "records")
"""Modules that must import with the dependencies of the base installation alone."""


def main() -> None:
    """Run all steps."""
    kernels = sys.argv[1]
    assert Path(triokafka.__file__).is_relative_to(sys.prefix), triokafka.__file__
    for name in MODULES:
        importlib.import_module(f"triokafka.{name}")
    version = _command("--version")
    assert f"({kernels} kernels" in version, f"expected {kernels} kernels: {version}"
    trio.run(_producer_and_consumer)
    _command_line()
    print(version.strip())


async def _producer_and_consumer() -> None:
    with trio.fail_after(60):
        async with running_broker() as broker:
            async with triokafka.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                await (await producer.send("smoke", b"value", key=b"key"))
            async with triokafka.Consumer(
                "smoke", bootstrap_servers=broker.bootstrap_servers, group_id="smoke", auto_offset_reset="earliest"
            ) as consumer:
                async for record in consumer:
                    assert (record.key, record.value) == (b"key", b"value"), record
                    break


def _command_line() -> None:
    command = [_program(), "broker", "--in-memory", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            address = broker.stdout.readline().removeprefix("ready ").strip()
            server = ("--bootstrap-server", address)
            _command("topics", "create", "smoke", *server)
            _command("produce", "smoke", *server, given="one record\n")
            consumed = _command("consume", "smoke", "--from-beginning", "--max-messages", "1", *server)
            assert "one record" in consumed, consumed
            assert "smoke" in _command("topics", "list", *server)
        finally:
            broker.terminate()
    assert broker.returncode == 0, broker.returncode


def _command(*arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [_program(), *arguments], input=given, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, (
        f"triokafka {' '.join(arguments)}: status {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def _program() -> str:
    return str(Path(sys.executable).parent / "triokafka")


if __name__ == "__main__":
    main()
