"""Run ``triokafka broker`` after its options are parsed: one broker, or several for tests, until a signal."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import TYPE_CHECKING

from triokafka.cli.broker_options import BrokerOptions, WrongUse, address_of, ending_signals, properties_of
from triokafka.cli.control_token import control_token
from triokafka.cli.progress import Advance, progress, shows_progress
from triokafka.named_tuple import NamedTuple

if TYPE_CHECKING:
    import trio

    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.broker_stub.control.endpoint import ControlEndpoint
    from triokafka.broker_stub.http_server import HttpServer
    from triokafka.broker_stub.metrics.sample import Sample
    from triokafka.world import World


def load() -> None:
    """Import the broker's modules."""
    gc.disable()  # imported modules stay: collecting garbage among them took a fifth of the start-up time
    import triokafka.broker_stub.config
    import triokafka.broker_stub.node
    import triokafka.world.system  # noqa: F401

    gc.freeze()
    gc.enable()


def prepare(options: BrokerOptions) -> Callable[[], int]:
    """Return a function that runs the broker, or several, and returns the exit status.

    Raises:
        WrongUse: the properties are invalid.
    """
    load()
    import trio

    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.errors import ConfigurationError
    from triokafka.world.system import RealWorld

    logging.basicConfig(
        stream=sys.stderr,
        level=(logging.WARNING, logging.INFO, logging.DEBUG)[min(options.verbose, 2)],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    world = RealWorld()
    world.raise_file_limit()
    world.keep_little_free_memory()
    properties = properties_of(options)
    control = None if options.control is None else address_of("--control", options.control)
    metrics = None if options.metrics is None else address_of("--metrics", options.metrics)
    token = None if control is None else control_token(options.control_token_file, world)
    try:
        config = BrokerConfig.from_properties(properties)
    except ConfigurationError as error:
        raise WrongUse(str(error)) from None
    if options.in_memory:
        from triokafka.world.memory import MemoryStorage

        world.storage = MemoryStorage(crashable=False)
    _note_unreachable_advertised_listeners(config)
    page = None if options.console is None else _page(options.console, config, options.console_changes)
    if control is None and options.nodes is None:
        return lambda: trio.run(_serve, config, world, metrics, page)
    return lambda: trio.run(_serve_tests, config, world, options.nodes, control, token, metrics, page)


class _Page(NamedTuple):
    """The console of ``--console``: its address, the number of the listener that it uses, and whether it changes."""

    address: tuple[str, int]
    listener: int
    allow_changes: bool


def _page(text: str, config: BrokerConfig, allow_changes: bool) -> _Page:
    from triokafka.cli.broker_console import console_address, plain_listener

    return _Page(console_address("--console", text), plain_listener(config), allow_changes)


async def _open_page(
    page: _Page,
    nursery: trio.Nursery,
    nodes: Sequence[str],
    world: World,
    metrics: Callable[[], Iterable[Sample]],
    name: str,
    control: ControlEndpoint | None,
) -> str:
    """Serve the console in a nursery, and return its line. ``nodes`` has the addresses of each node's listeners."""
    from triokafka.cli.broker_console import SameProcessControl, open_console, source_of
    from triokafka.console.fault_switches import ControlledFaults

    url = await open_console(
        nursery,
        "--console",
        page.address,
        [addresses.split(",")[page.listener] for addresses in nodes],
        world,
        allow_changes=page.allow_changes,
        metrics={name: source_of(metrics, world)},
        faults=None if control is None else ControlledFaults(SameProcessControl(control)),
    )
    return f"console {url}"


def _note_unreachable_advertised_listeners(config: BrokerConfig) -> None:
    """Print a note for a listener on all interfaces without ``advertised.listeners``: other machines cannot use it."""
    for listener in config.broker_listeners:
        if listener.host in ("", "0.0.0.0", "::") and listener.name not in config.advertised:
            print(
                f"Note: the broker advertises {listener.host or 'localhost'}, which only clients on this machine can "
                f"reach. For others: --set advertised.listeners={listener.name}://HOST:{listener.port or 'PORT'}",
                file=sys.stderr,
            )


@contextmanager
def _little_garbage() -> Iterator[None]:
    """Run the garbage collector less often, and after the start on new objects only.

    Neither the start nor a request leaves reference cycles, and collecting took a tenth of a request's time.
    """
    gc.set_threshold(20_000, 20, 20)
    yield
    gc.freeze()
    gc.set_threshold(10_000, 1, 1)
    gc.callbacks.append(_Settling())


class _Settling:
    """Freezes objects that survived two collections, because the broker serves no request during a collection.

    A full collection takes 15 to 30 ms in a broker that has just started (50,000 objects), 25 to 55 ms with 500
    connections, and half a second with 9,000 partitions. It runs again when the number of objects has doubled, in case
    there are cycles after all. A broker that does not grow has no such pause, and cycles never take more than half of
    the memory.
    """

    def __init__(self, times: int = 100) -> None:
        self._times = times
        self._settled = 0
        self._looking = False
        self._known: int | None = None  # not yet: counting takes a fiftieth of the start-up time

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or not info["generation"]:
            return
        if self._looking:
            if info["generation"] == 2:
                gc.freeze()
                self._looking, self._known = False, gc.get_freeze_count()
            return
        if self._known is None:
            self._known = gc.get_freeze_count()
        gc.freeze()
        self._settled += 1
        # Not each time: counting takes 12 ms with 9,000 partitions.
        if not self._settled % self._times and gc.get_freeze_count() > 2 * self._known:
            self._looking = True
            gc.unfreeze()


@contextmanager
def _opening_logs() -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the broker opens its logs, which is slow after a crash.

    Yields the ``log_opened`` of `Node`.
    """
    lock = threading.Lock()

    with ExitStack() as bar:
        advance: Advance | None = None

        def log_opened(count: int) -> None:
            nonlocal advance
            with lock:
                if advance is None:
                    advance = bar.enter_context(progress("opening logs", count, shown=True))
                advance(1)

        yield log_opened if shows_progress() else lambda count: None


async def _serve(config: BrokerConfig, world: World, metrics: tuple[str, int] | None, page: _Page | None) -> int:
    """Run the broker until a signal stops it or one of its parts fails."""
    from triokafka.broker_stub.node import Node

    async def serve(end: _End) -> int:
        async with AsyncExitStack() as running:
            with _opening_logs() as log_opened, _little_garbage():
                node = Node(config, world=world, log_opened=log_opened)
                await running.enter_async_context(node)
            end.in_order = True
            lines = [f"ready {node.addresses}"]
            servers: list[HttpServer] = []
            if metrics is not None:
                from triokafka.broker_stub.metrics.endpoint import metrics_server

                servers.append(metrics_server(world, node.metrics, lambda: node.ready))
                lines.append(f"metrics {await _bound(servers[0], '--metrics', metrics)}")

            async def opened(nursery: trio.Nursery) -> None:
                if page is not None:
                    name = f"broker {config.node_id}"
                    lines.append(await _open_page(page, nursery, [node.addresses], world, node.metrics, name, None))
                print(*lines, sep="\n", flush=True)

            await _while_serving(servers, opened, lambda: end.or_when(node.wait_stopped))
        return _status(node.failure)

    return await _until_signalled(serve)


async def _serve_tests(
    config: BrokerConfig,
    world: World,
    nodes: int | None,
    control: tuple[str, int] | None,
    token: str | None,
    metrics: tuple[str, int] | None,
    page: _Page | None,
) -> int:
    """Run one or more brokers with fault injection until a signal stops them or one of them fails."""
    from triokafka.broker_stub.control.endpoint import ControlEndpoint
    from triokafka.broker_stub.metrics.endpoint import metrics_server
    from triokafka.testing.control import brokers_of, control_actions, control_metrics, control_readiness
    from triokafka.testing.running import running

    async def serve(end: _End) -> int:
        failures: list[Exception] = []
        async with AsyncExitStack() as stack:
            with _little_garbage():
                target = await stack.enter_async_context(running(config, world, nodes))
            end.in_order = True
            lines = [f"ready {target.bootstrap_servers}"]
            servers: list[HttpServer | ControlEndpoint] = []
            endpoint: ControlEndpoint | None = None
            if control is not None:
                endpoint = ControlEndpoint(
                    target.faults, world, control_metrics(target), control_actions(target), token=token
                )
                lines.append(f"control {await _bound(endpoint, '--control', control)}")
                if token is None and endpoint.token is not None:
                    lines.append(f"token {endpoint.token}")
                servers.append(endpoint)
            if metrics is not None:
                server = metrics_server(world, control_metrics(target), control_readiness(target))
                lines.append(f"metrics {await _bound(server, '--metrics', metrics)}")
                servers.append(server)

            async def opened(nursery: trio.Nursery) -> None:
                if page is not None:
                    nodes = [broker.bootstrap_servers for broker in brokers_of(target)]
                    measured = control_metrics(target)
                    lines.append(await _open_page(page, nursery, nodes, world, measured, "first broker", endpoint))
                print(*lines, sep="\n", flush=True)

            async def note_failure() -> None:
                failures.append(await target.wait_failed())

            await _while_serving(servers, opened, lambda: end.or_when(note_failure))
        return _status(failures[0] if failures else None)

    return await _until_signalled(serve)


async def _bound(server: HttpServer | ControlEndpoint, option: str, address: tuple[str, int]) -> str:
    """Bind an HTTP server and return its address. Raises `ConfigurationError`."""
    from triokafka.errors import ConfigurationError
    from triokafka.structs import address_text

    try:
        host, port = await server.bind(*address)
    except OSError as error:
        why = error.strerror or error
        raise ConfigurationError(
            f"{option}: cannot listen on {address_text(*address)}: {why}. Choose another address or port"
        ) from error
    return address_text(host, port)


async def _while_serving(
    servers: Sequence[HttpServer | ControlEndpoint],
    opened: Callable[[trio.Nursery], Awaitable[None]],
    wait: Callable[[], Awaitable[None]],
) -> None:
    """Serve HTTP until ``wait`` returns. ``opened`` gets the nursery before, for more to serve."""
    import trio

    async with trio.open_nursery() as nursery:
        for server in servers:
            nursery.start_soon(server.run)
        await opened(nursery)
        await wait()
        nursery.cancel_scope.cancel()


class _End:
    """Shutdown on a signal: immediate while brokers are starting, orderly once ``in_order`` is set."""

    def __init__(self, scope: trio.CancelScope) -> None:
        import trio

        self.in_order = False
        self._scope = scope
        self._asked = trio.Event()

    def ask(self) -> None:
        """Handle a signal."""
        self._asked.set()
        if not self.in_order:
            self._scope.cancel()

    async def or_when(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Return when a shutdown was requested, or ``wait`` returns."""
        import trio

        async with trio.open_nursery() as nursery:

            async def end_when_asked() -> None:
                await self._asked.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(end_when_asked)
            await wait()
            nursery.cancel_scope.cancel()


async def _until_signalled(serve: Callable[[_End], Awaitable[int]]) -> int:
    """Return the exit status of ``serve``; 0 when a signal stops it during the start."""
    import trio

    status = 0
    failure: Exception | None = None
    with trio.open_signal_receiver(*ending_signals()) as signals:
        async with trio.open_nursery() as nursery:
            end = _End(nursery.cancel_scope)

            async def listen() -> None:
                async for _ in signals:
                    end.ask()

            nursery.start_soon(listen)
            try:
                status = await serve(end)
            except Exception as error:  # unwrapped, not in an exception group
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return status


def _status(failure: Exception | None) -> int:
    if failure is None:
        return 0
    print(f"The broker has stopped after a failure: {failure!r}", file=sys.stderr)
    return 1
