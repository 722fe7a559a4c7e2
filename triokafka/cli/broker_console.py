"""The console of ``triokafka broker --console`` and ``triokafka cluster --console``: in the same process."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from triokafka.cli.broker_options import WrongUse, address_of
from triokafka.errors import ConfigurationError

if TYPE_CHECKING:
    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.broker_stub.control.endpoint import ControlEndpoint
    from triokafka.broker_stub.metrics.sample import Sample
    from triokafka.console import ConsoleOptions
    from triokafka.console.fault_switches import FaultSwitches
    from triokafka.console.scraped_metrics import MetricsSource
    from triokafka.console.serving import ConsoleAddress
    from triokafka.world import World

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
"""The hosts on which only this machine reaches a page."""
Samples = Callable[[], Iterable["Sample"]]


def console_address(option: str, text: str) -> tuple[str, int]:
    """Return the address of a page that needs no login. Raises `WrongUse`."""
    host, port = address_of(option, text)
    host = host.strip("[]")
    if host not in LOOPBACK:
        why = "the page has no login, so it listens on 127.0.0.1. For others: triokafka console --login"
        raise WrongUse(f"{option} {text}: {why}.")
    import_console()
    return host, port


def import_console() -> None:
    """Import what the console needs. Raises `WrongUse`, with the name of the extra."""
    try:
        import hypercorn.trio  # noqa: F401
        import quart_trio  # noqa: F401
    except ImportError as error:
        raise WrongUse(f"The console needs {error.name}: pip install 'triokafka[console]'.") from None


def plain_listener(config: BrokerConfig) -> int:
    """Return the number of the first listener without TLS and SASL.

    Raises:
        WrongUse: every listener needs credentials, which the broker does not have.
    """
    for number, listener in enumerate(config.broker_listeners):
        if listener.security_protocol == "PLAINTEXT":
            return number
    raise WrongUse("--console needs a PLAINTEXT listener. For others: triokafka console --command-config FILE.")


class SameProcessControl:
    """The control endpoint of this process, without a connection."""

    address = "the control endpoint of this process"

    def __init__(self, endpoint: ControlEndpoint) -> None:
        self._endpoint = endpoint

    async def request(self, method: str, path: str, document: Any = None) -> tuple[int, str]:
        """Return status and body. Raises `KafkaError`."""
        body = b"" if document is None else json.dumps(document).encode()
        status, answer = await self._endpoint.carry_out(method, path, body)
        return int(status.split()[0]), json.dumps(answer)


def source_of(samples: Samples, world: World) -> MetricsSource:
    """Return the metrics of a node in this process."""
    from triokafka.broker_stub.metrics.prometheus import prometheus_text

    async def read() -> str:
        return await prometheus_text(samples(), world)

    return read


async def open_console(
    nursery: trio.Nursery,
    option: str,
    address: tuple[str, int],
    bootstrap: str | Sequence[str],
    world: World,
    *,
    allow_changes: bool,
    metrics: Mapping[str, MetricsSource],
    faults: FaultSwitches | None,
) -> str:
    """Serve a console in a nursery until that is cancelled, and return its URL. Raises `ConfigurationError`."""
    from triokafka.console import ConsoleOptions
    from triokafka.console.serving import ConsoleAddress

    client = {"bootstrap_servers": bootstrap, "client_id": "triokafka-console"}
    hosts: set[str] = set()
    options = ConsoleOptions(client, hosts, allow_changes=allow_changes, metrics=metrics, faults=faults)
    served = ConsoleAddress(*address)
    return await start_console(nursery, option, served, options, hosts, world, trio.sleep_forever)


async def start_console(
    nursery: trio.Nursery,
    option: str,
    address: ConsoleAddress,
    options: ConsoleOptions,
    hosts: set[str],
    world: World,
    stopped: Callable[[], Awaitable[None]],
) -> str:
    """Serve a console in a nursery until ``stopped`` returns, and return its URL. ``hosts`` are those of its options.

    Raises:
        ConfigurationError: the address cannot be used. The message begins with ``option``, which named it.
    """
    from triokafka.console.serving import serve_console

    try:
        url: str = await nursery.start(serve_console, address, options, hosts, world, stopped)
    except OSError as error:
        text = f"{address.shown_host}:{address.port}: {error.strerror or error}"
        raise ConfigurationError(f"{option}: cannot listen on {text}. Choose another address or port") from error
    return url
