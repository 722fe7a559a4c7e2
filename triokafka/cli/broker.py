"""``triokafka broker``: one broker node in the foreground."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from triokafka.cli.output import examples
from triokafka.cli.progress import Advance, progress, shows_progress
from triokafka.cli.values import configured, text_of_file, whole_number

if TYPE_CHECKING:
    import trio

    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.broker_stub.server import Broker
    from triokafka.world import World


@click.command(
    "broker",
    epilog=examples(
        "triokafka broker --in-memory",
        "triokafka broker --data-dir ./data --listen 127.0.0.1:9092",
        "triokafka broker --config server.properties --set num.partitions=3",
    ),
)
@click.option(
    "--listen",
    "listeners",
    multiple=True,
    metavar="HOST:PORT",
    help="Address to listen on; port 0 takes a free one. May be given more than once.  [default: 127.0.0.1:9092]",
)
@click.option("--data-dir", "data_directories", multiple=True, metavar="DIR", help="Where the logs are kept.")
@click.option("--in-memory", is_flag=True, help="Keep everything in memory; all is gone when the broker ends.")
@click.option("--config", "config_file", metavar="FILE", help="A server.properties file, with Kafka's names.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="One property, over those of the file.")
@click.option(
    "--control",
    metavar="HOST:PORT",
    help='For tests: faults and metrics over HTTP; the address is printed after the line "ready".',
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="For tests: a cluster of so many brokers in this process, on ports that follow each other.",
)
@click.option("--verbose", "-v", count=True, help="Log what happens to standard error; -vv: every request, too.")
def command(
    listeners: tuple[str, ...],
    data_directories: tuple[str, ...],
    in_memory: bool,
    config_file: str | None,
    settings: tuple[str, ...],
    control: str | None,
    nodes: int | None,
    verbose: int,
) -> int:
    """Run one broker, and print "ready HOST:PORT" once it accepts connections.

    SIGTERM, SIGINT and SIGHUP (its terminal is closed) end it cleanly: what was written is flushed, and the next start
    needs no recovery.
    """
    gc.disable()  # what is imported stays: to look for garbage in it again and again was a fifth of the start
    import trio

    from triokafka.broker_stub.config import BrokerConfig, parse_properties
    from triokafka.broker_stub.server import Broker  # noqa: F401  # here, with the rest of what stays
    from triokafka.world import RealWorld

    gc.freeze()
    gc.enable()
    if in_memory and data_directories:
        raise click.UsageError("--in-memory and --data-dir exclude each other.")
    logging.basicConfig(
        stream=sys.stderr,
        level=(logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    properties: dict[str, str] = {}
    world = RealWorld()
    world.raise_file_limit()
    if config_file is not None:
        properties.update(configured(parse_properties, text_of_file(config_file), source=config_file))
    names = [_listener_name(number) for number in range(len(listeners))]
    if listeners:
        _forget_other_listeners(properties, names)
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator:
            raise click.UsageError(f"--set takes NAME=VALUE, not {setting!r}.")
        properties[name.strip()] = value.strip()
    if listeners:
        properties["listeners"] = ",".join(
            _listener(name, address) for name, address in zip(names, listeners, strict=True)
        )
        known = _entries(properties.get("listener.security.protocol.map", ""), ":")
        known = {**{name: f"{name}:PLAINTEXT" for name in names}, **known}
        properties["listener.security.protocol.map"] = ",".join(known.values())
    elif "listeners" not in properties:
        properties["listeners"] = "PLAINTEXT://127.0.0.1:9092"
    if data_directories:
        properties["log.dirs"] = ",".join(data_directories)
    # An empty one, as of a variable that is not set, is none: Kafka's default is a directory under /tmp.
    if not in_memory and not any(properties.get(name, "").strip(" ,") for name in ("log.dirs", "log.dir")):
        raise click.UsageError("Say where to keep the data: --data-dir DIR, or --in-memory.")
    if in_memory:
        from triokafka.world_memory import MemoryStorage

        world.storage = MemoryStorage(crashable=False)
        properties.setdefault("log.dirs", "/data")
    control_address = None if control is None else _address("--control", control)
    if nodes is not None:
        if len(listeners) > 1:
            raise click.UsageError("--nodes takes one --listen: the brokers listen there and on the next ports.")
        for name in ("default.replication.factor", "offsets.topic.replication.factor"):
            properties.setdefault(name, str(min(nodes, 3)))
        properties.setdefault("auto.leader.rebalance.enable", "false")
    brokers = configured(BrokerConfig.from_properties, properties)
    _note_what_strangers_are_told(brokers)
    if control_address is None and nodes is None:
        return trio.run(_serve, brokers, world)
    return trio.run(_serve_tests, brokers, world, nodes, control_address)


def _listener_name(number: int) -> str:
    return "PLAINTEXT" if number == 0 else f"PLAINTEXT{number + 1}"


def _listener(name: str, address: str) -> str:
    host, port = _address("--listen", address)
    return f"{name}://{host}:{port}"


def _entries(text: str, separator: str) -> dict[str, str]:
    """``NAME:…`` or ``NAME://…``, separated by commas, by the names of listeners."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return {part.partition(separator)[0].strip().upper(): part for part in parts}


def _forget_other_listeners(properties: dict[str, str], names: Sequence[str]) -> None:
    """``--listen`` says all that the broker listens on: what a file says of other listeners is of no use then."""
    advertised = _entries(properties.pop("advertised.listeners", ""), "://")
    kept = [entry for name, entry in advertised.items() if name in names]
    if kept:
        properties["advertised.listeners"] = ",".join(kept)
    if properties.get("inter.broker.listener.name", "").upper() not in names:
        properties.pop("inter.broker.listener.name", None)


def _note_what_strangers_are_told(config: BrokerConfig) -> None:
    """A listener on all interfaces is for other machines, to which its own address says nothing."""
    for listener in config.broker_listeners:
        if listener.host in ("", "0.0.0.0", "::") and listener.name not in config.advertised:
            click.echo(
                f"Note: clients are told to connect to {listener.host or 'localhost'}, which is right on this machine "
                f"only. For others: --set advertised.listeners={listener.name}://HOST:{listener.port or 'PORT'}",
                err=True,
            )


def _address(option: str, address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal():
        raise click.UsageError(f"{option} takes HOST:PORT, not {address!r}.")
    if whole_number(port, 65_535) is None:
        raise click.UsageError(f"{option} {address}: a port is a number from 0 to 65535.")
    return host, int(port)


@contextmanager
def _little_garbage() -> Iterator[None]:
    """Look for cycles less often, and after the start among new objects only: neither the start nor a request leaves
    any, and looking cost a tenth of a request."""
    gc.set_threshold(20_000, 20, 20)
    yield
    gc.freeze()
    gc.set_threshold(10_000, 1, 1)
    gc.callbacks.append(_Settling())


class _Settling:
    """Leaves what two looks for cycles have found to be in use out of the next ones: nobody is served while it is
    looked at. That takes 15 to 30 ms in a broker that has just begun (50,000 objects), 25 to 55 with 500 connections,
    and half a second with 9,000 partitions.

    All of it is looked at once more when there is twice as much as there was the last time: then there may be cycles
    after all. A broker that does not grow has no such pause, and cycles never take more than half of the memory.
    """

    def __init__(self, times: int = 100) -> None:
        self._times = times
        self._settled = 0
        self._looking = False
        self._known = gc.get_freeze_count()

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or not info["generation"]:
            return
        if self._looking:
            if info["generation"] == 2:
                gc.freeze()
                self._looking, self._known = False, gc.get_freeze_count()
            return
        gc.freeze()
        self._settled += 1
        # Not each time: to count takes 12 ms with 9,000 partitions.
        if not self._settled % self._times and gc.get_freeze_count() > 2 * self._known:
            self._looking = True
            gc.unfreeze()


@contextmanager
def _opening_logs(broker: Broker) -> Iterator[None]:
    """A bar for a start that opens many logs, which after a crash takes its time."""
    lock = threading.Lock()

    with ExitStack() as bar:
        advance: Advance | None = None

        def log_opened(count: int) -> None:
            nonlocal advance
            with lock:
                if advance is None:
                    advance = bar.enter_context(progress("opening logs", count, shown=True))
                advance(1)

        if shows_progress():
            broker.logs.on_log_opened = log_opened
        yield
        broker.logs.on_log_opened = None


async def _serve(config: BrokerConfig, world: World) -> int:
    """Run the broker until a signal asks it to end, or a part of it fails."""
    from triokafka.broker_stub.server import Broker

    async def serve(end: _End) -> int:
        async with AsyncExitStack() as running:
            broker = Broker(config, world=world)
            with _opening_logs(broker), _little_garbage():
                await running.enter_async_context(broker)
            end.in_order = True
            print(f"ready {broker.bootstrap_servers}", flush=True)
            await end.or_when(broker.wait_stopped)
        return _status(broker.failure)

    return await _until_signalled(serve)


async def _serve_tests(config: BrokerConfig, world: World, nodes: int | None, control: tuple[str, int] | None) -> int:
    """Run a broker, or several, that can be told to fail, until a signal asks them to end or one has failed itself."""
    import trio

    from triokafka.broker_stub.control import ControlEndpoint
    from triokafka.errors import ConfigurationError
    from triokafka.testing.brokers import running
    from triokafka.testing.control import control_actions, control_metrics

    async def serve(end: _End) -> int:
        failures: list[Exception] = []
        async with AsyncExitStack() as stack:
            with _little_garbage():
                target = await stack.enter_async_context(running(config, world, nodes))
            end.in_order = True
            endpoint = ControlEndpoint(target.faults, world, control_metrics(target), control_actions(target))
            lines = [f"ready {target.bootstrap_servers}"]
            if control is not None:
                try:
                    host, port = await endpoint.bind(*control)
                except OSError as error:
                    raise ConfigurationError(f"--control {control[0]}:{control[1]}: {error}") from error
                lines.append(f"control {host}:{port}")
            print(*lines, sep="\n", flush=True)

            async def note_failure() -> None:
                failures.append(await target.wait_failed())

            async with trio.open_nursery() as nursery:
                if control is not None:
                    nursery.start_soon(endpoint.run)
                await end.or_when(note_failure)
                nursery.cancel_scope.cancel()
        return _status(failures[0] if failures else None)

    return await _until_signalled(serve)


class _End:
    """The end that a signal asks for: at once while brokers are starting, and ``in_order`` from then on."""

    def __init__(self, scope: trio.CancelScope) -> None:
        import trio

        self.in_order = False
        self._scope = scope
        self._asked = trio.Event()

    def ask(self) -> None:
        """A signal came."""
        self._asked.set()
        if not self.in_order:
            self._scope.cancel()

    async def or_when(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Return when the end was asked for, or ``wait`` returns."""
        import trio

        async with trio.open_nursery() as nursery:

            async def end_when_asked() -> None:
                await self._asked.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(end_when_asked)
            await wait()
            nursery.cancel_scope.cancel()


def _ending_signals() -> list[signal.Signals]:
    """What asks for the end. SIGHUP does not where somebody had it ignored, as ``nohup`` does."""
    asked = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asked.append(signal.SIGHUP)
    return asked


async def _until_signalled(serve: Callable[[_End], Awaitable[int]]) -> int:
    """The status that ``serve`` ends with; 0 when a signal ends it while it is starting."""
    import trio

    status = 0
    failure: Exception | None = None
    with trio.open_signal_receiver(*_ending_signals()) as signals:
        async with trio.open_nursery() as nursery:
            end = _End(nursery.cancel_scope)

            async def listen() -> None:
                async for _ in signals:
                    end.ask()

            nursery.start_soon(listen)
            try:
                status = await serve(end)
            except Exception as error:  # as itself, not in a group
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return status


def _status(failure: Exception | None) -> int:
    if failure is None:
        return 0
    click.echo(f"The broker failed and has stopped: {failure!r}", err=True)
    return 1
