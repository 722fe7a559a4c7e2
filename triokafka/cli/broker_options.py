"""The options of ``triokafka broker``, and the broker properties that follow from them. Imports no click.

`plain_options` parses the usual options without click: importing click and parsing with it takes a twentieth of the
start-up time.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Final

from triokafka.cli.numbers import whole_number
from triokafka.named_tuple import NamedTuple

_NO_PROPERTIES: Final[Mapping[str, str]] = {}


class WrongUse(Exception):
    """A usage error; the message is one sentence."""


class BrokerOptions(NamedTuple):
    """The options of the command; ``properties`` come from the properties file."""

    listeners: Sequence[str] = ()
    data_directories: Sequence[str] = ()
    in_memory: bool = False
    properties: Mapping[str, str] = _NO_PROPERTIES
    settings: Sequence[str] = ()
    control: str | None = None
    nodes: int | None = None
    verbose: int = 0
    metrics: str | None = None
    control_token_file: str | None = None
    console: str | None = None
    console_changes: bool = False


def plain_options(words: Sequence[str]) -> BrokerOptions | None:
    """Parse arguments that spell address, directory and property options in full; None if there is any other word."""
    found: dict[str, list[str]] = {"--listen": [], "--data-dir": [], "--set": []}
    in_memory = False
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--in-memory":
            in_memory = True
            continue
        if not equals:
            value = next(rest, "")
        if name not in found or not value:
            return None
        found[name].append(value)
    return BrokerOptions(found["--listen"], found["--data-dir"], in_memory, settings=found["--set"])


def properties_of(options: BrokerOptions) -> dict[str, str]:
    """Return the broker's properties: options override ``--set``, which overrides the file.

    Raises:
        WrongUse: options exclude each other, are malformed or incomplete.
    """
    if options.control_token_file is not None and options.control is None:
        raise WrongUse("--control-token-file needs --control HOST:PORT.")
    if options.console_changes and options.console is None:
        raise WrongUse("--console-allow-changes needs --console HOST:PORT.")
    if options.in_memory and options.data_directories:
        raise WrongUse("--in-memory and --data-dir exclude each other.")
    properties = dict(options.properties)
    listeners = options.listeners
    names = [_listener_name(number) for number in range(len(listeners))]
    if listeners:
        _forget_other_listeners(properties, names)
    for setting in options.settings:
        name, value = property_of(setting)
        properties[name] = value
    if listeners:
        properties["listeners"] = ",".join(
            _listener(name, address) for name, address in zip(names, listeners, strict=True)
        )
        known = _entries(properties.get("listener.security.protocol.map", ""), ":")
        known = {**{name: f"{name}:PLAINTEXT" for name in names}, **known}
        properties["listener.security.protocol.map"] = ",".join(known.values())
    elif "listeners" not in properties:
        properties["listeners"] = "PLAINTEXT://127.0.0.1:9092"
    if options.data_directories:
        properties["log.dirs"] = ",".join(options.data_directories)
    # An empty value (an unset shell variable) counts as missing: Kafka's default is a directory under /tmp.
    if not options.in_memory and not any(properties.get(name, "").strip(" ,") for name in ("log.dirs", "log.dir")):
        raise WrongUse("No place for the data: give --data-dir DIR or --in-memory.")
    if options.in_memory:
        properties.setdefault("log.dirs", "/data")
    if options.nodes is not None:
        if len(listeners) > 1:
            raise WrongUse("--nodes takes one --listen: the brokers listen there and on the next ports.")
        for listener in properties["listeners"].split(","):
            port = whole_number(listener.rpartition(":")[2].strip(), 65_535)
            if port and port + options.nodes - 1 > 65_535:
                raise WrongUse(
                    f"--nodes {options.nodes}: the brokers would listen on ports {port} to"
                    f" {port + options.nodes - 1}, but the highest port is 65535. Choose a lower port."
                )
        for name in ("default.replication.factor", "offsets.topic.replication.factor"):
            properties.setdefault(name, str(min(options.nodes, 3)))
        properties.setdefault("auto.leader.rebalance.enable", "false")
    return properties


def property_of(setting: str) -> tuple[str, str]:
    """Return name and value of a ``--set NAME=VALUE``. Raises `WrongUse`."""
    name, separator, value = setting.partition("=")
    if not separator:
        raise WrongUse(f"--set takes NAME=VALUE, not {setting!r}.")
    return name.strip(), value.strip()


def address_of(option: str, address: str) -> tuple[str, int]:
    """Return the host and port in an option's value. Raises `WrongUse`."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal():
        raise WrongUse(f"{option} takes HOST:PORT, not {address!r}.")
    if whole_number(port, 65_535) is None:
        raise WrongUse(f"{option} {address}: a port is a number from 0 to 65535.")
    return host, int(port)


def ending_signals() -> list[signal.Signals]:
    """Return the signals that shut down. SIGHUP is not one of them if the parent ignores it, as ``nohup`` does."""
    asked = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asked.append(signal.SIGHUP)
    return asked


def _listener_name(number: int) -> str:
    return "PLAINTEXT" if number == 0 else f"PLAINTEXT{number + 1}"


def _listener(name: str, address: str) -> str:
    host, port = address_of("--listen", address)
    return f"{name}://{host}:{port}"


def _entries(text: str, separator: str) -> dict[str, str]:
    """Split comma-separated ``NAME:…`` or ``NAME://…`` into a dictionary by listener name."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return {part.partition(separator)[0].strip().upper(): part for part in parts}


def _forget_other_listeners(properties: dict[str, str], names: Sequence[str]) -> None:
    """Drop the file's properties of other listeners: ``--listen`` replaces all listeners of the file."""
    advertised = _entries(properties.pop("advertised.listeners", ""), "://")
    kept = [entry for name, entry in advertised.items() if name in names]
    if kept:
        properties["advertised.listeners"] = ",".join(kept)
    if properties.get("inter.broker.listener.name", "").upper() not in names:
        properties.pop("inter.broker.listener.name", None)
