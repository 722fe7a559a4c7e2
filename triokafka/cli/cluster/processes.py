"""The processes of a cluster: start, watch and stop them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import IO, Final

import trio

from triokafka.cli.broker_options import ending_signals
from triokafka.cli.cluster.layout import ClusterLayout, NodeLayout
from triokafka.errors import KafkaError, first_leaf

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_LOG_LINES: Final = 5


class NodeFailedError(KafkaError):
    """A node did not start, or ended by itself; the message has the end of its log."""


class ChildProcess:
    """One node of a cluster, as a process that can be started again after it has ended.

    Use: `format` before the first start, then `run` in a nursery. `ready` is set while the node accepts connections.
    """

    def __init__(self, layout: NodeLayout, *, verbose: int = 0, metrics: str | None = None) -> None:
        self.layout = layout
        self.is_frozen = False
        self._metrics = metrics
        self._ended = trio.Event()
        self.ready = trio.Event()
        self._verbose = verbose
        self._process: trio.Process | None = None
        self.asked_to_end = False
        """Whether `stop` or `kill` ended the last process."""

    @property
    def node_id(self) -> int:
        """The id of the node."""
        return self.layout.node_id

    @property
    def is_running(self) -> bool:
        """Whether it has a process."""
        return self._process is not None and self._process.returncode is None

    async def format(self, cluster_id: str) -> None:
        """Format its data directory if that is new. Its properties must have been written.

        Raises:
            NodeFailedError: the directory cannot be formatted.
        """
        command = [
            *(sys.executable, "-m", "triokafka", "storage", "format", "--ignore-formatted"),
            *("--cluster-id", cluster_id, "--config", self.layout.config),
        ]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip() or done.stdout.decode(errors="replace").strip()
            raise NodeFailedError(f"Node {self.node_id} cannot be formatted: {said}")

    async def run(self) -> int:
        """Run a process to its end, and return its exit status; a signal's number is negative.

        If cancelled, the process gets SIGTERM, and SIGKILL after 30 seconds.

        Raises:
            NodeFailedError: it ended, or did not become ready within a minute, before it was asked to stop.
        """
        options = ["-" + "v" * self._verbose] if self._verbose else []
        if self._metrics is not None:
            options += ["--metrics", self._metrics]
        command = [sys.executable, "-m", "triokafka", "broker", "--config", self.layout.config, *options]
        with self._open_log() as log:
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        self._process, self.asked_to_end, self.is_frozen = process, False, False
        self._ended = trio.Event()
        assert process.stdout is not None
        try:
            async with process.stdout:
                line = b""
                with trio.move_on_after(_START_SECONDS):
                    while b"\n" not in line and (chunk := await process.stdout.receive_some(4096)):
                        line += chunk
                if line.startswith(b"ready "):
                    self.ready.set()
                elif not self.asked_to_end:
                    raise self._failed("did not start")
                while await process.stdout.receive_some(4096):  # until it ends
                    pass
            return await process.wait()
        finally:
            self.ready = trio.Event()
            await self._end()
            self._ended.set()

    def _open_log(self) -> IO[bytes]:
        return open(self.layout.log, "ab")

    async def _end(self) -> None:
        """End the process, also if the caller was cancelled."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self.stop()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(_STOP_SECONDS):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _failed(self, why: str) -> NodeFailedError:
        return NodeFailedError(f"Node {self.node_id} {why}. The end of {self.layout.log}:\n{self.last_words()}")

    def last_words(self) -> str:
        """Return the last lines of the node's log."""
        try:
            with open(self.layout.log, encoding="utf-8", errors="replace") as file:
                return "".join(file.readlines()[-_LOG_LINES:]).rstrip()
        except OSError as error:
            return str(error)

    def stop(self) -> None:
        """Ask the process to end cleanly; it does a controlled shutdown."""
        self.thaw()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once: it flushes nothing, and sends nothing to the other nodes."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Pause the process: connections stay open, and nothing answers."""
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(signal.SIGSTOP)
            self.is_frozen = True

    def thaw(self) -> None:
        """End `freeze`."""
        if self.is_frozen and self.is_running:
            assert self._process is not None
            self._process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    async def wait_ended(self) -> None:
        """Wait until the process has ended, if there is one."""
        if self._process is not None:
            await self._ended.wait()

    def _signal(self, number: int) -> None:
        self.asked_to_end = True
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(number)


async def start_all(
    nodes: list[ChildProcess], cluster_id: str, nursery: trio.Nursery, ended: Callable[[ChildProcess, int], None]
) -> None:
    """Write the nodes' properties, format and start them, and wait until each has accepted connections.

    ``ended`` receives every node whose process has ended, with the exit status.

    Raises:
        NodeFailedError: a node cannot be formatted or started; the nursery's other tasks are cancelled.
    """
    try:
        for node in nodes:
            node.layout.write()
    except OSError as error:
        raise NodeFailedError(
            f"{error.filename}: {error.strerror}. Choose another --data-dir, or give this user access to it."
        ) from error
    async with trio.open_nursery() as formatting:
        for node in nodes:
            formatting.start_soon(node.format, cluster_id)

    async def run(node: ChildProcess) -> None:
        ended(node, await node.run())

    started = [node.ready for node in nodes]  # a node that ends has another event for its next start
    for node in nodes:
        nursery.start_soon(run, node)
    for event in started:
        await event.wait()


Start = Callable[[ChildProcess], Awaitable[None]]
OpenConsole = Callable[[trio.Nursery, Sequence[ChildProcess], Start], Awaitable[str]]
"""Serves a console in a nursery, and returns its URL; the function starts a node whose process has ended."""


async def run_cluster(
    layout: ClusterLayout,
    verbose: int = 0,
    *,
    metrics: Mapping[int, str] | None = None,
    console: OpenConsole | None = None,
) -> int:
    """Run the nodes until a signal comes or all have ended; return the exit status of ``triokafka cluster``.

    ``metrics`` has the addresses of the nodes' metrics. ``console`` serves the page and returns its URL; while there is
    one, the cluster continues without any node, because the page can start them again.

    Raises:
        NodeFailedError: a node could not be started; the others were stopped.
    """
    addresses = metrics or {}
    nodes = [ChildProcess(node, verbose=verbose, metrics=addresses.get(node.node_id)) for node in layout.nodes]
    failed: list[int] = []
    stopping = False
    try:
        with trio.open_signal_receiver(*ending_signals()) as received:
            async with trio.open_nursery() as nursery:

                def ended(node: ChildProcess, status: int) -> None:
                    if stopping:
                        return
                    if console is None or not node.asked_to_end:
                        failed.append(node.node_id)
                    why = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
                    left = sum(other.is_running for other in nodes)
                    print(
                        f"Node {node.node_id} {why}; {left} of {len(nodes)} run on. Its log: {node.layout.log}",
                        file=sys.stderr,
                        flush=True,
                    )
                    if not left and console is None:
                        nursery.cancel_scope.cancel()

                async def stop_on_signal() -> None:
                    nonlocal stopping
                    async for _ in received:
                        stopping = True
                        nursery.cancel_scope.cancel()
                        return

                nursery.start_soon(stop_on_signal)
                await start_all(nodes, layout.cluster_id, nursery, ended)
                lines = [f"ready {layout.bootstrap_servers}"]
                if console is not None:

                    async def run_again(node: ChildProcess) -> None:
                        try:
                            ended(node, await node.run())
                        except NodeFailedError as error:
                            print(error, file=sys.stderr, flush=True)

                    async def start(node: ChildProcess) -> None:
                        nursery.start_soon(run_again, node)
                        with trio.move_on_after(_START_SECONDS):
                            await node.ready.wait()

                    lines.append(f"console {await console(nursery, nodes, start)}")
                print(*lines, sep="\n", flush=True)
    except BaseExceptionGroup as group:
        first = first_leaf(group)
        if isinstance(first, KafkaError):
            raise first from None
        raise
    return 1 if failed else 0
