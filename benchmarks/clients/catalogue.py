"""The clients to measure, by name. Their libraries are imported only in the measuring process."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol, cast

from benchmarks.clients.job import Job, Latency, Stall, Throughput


class Driver(Protocol):
    """The interface of a ``drive_*`` module. ``how`` names the API; " idempotent" is appended if that is on."""

    throughput: Callable[[Job, str], Throughput]
    latency: Callable[[Job, str], Latency]
    stall: Callable[[Job, str], Stall]


class Client(NamedTuple):
    """One way to produce."""

    library: str
    """The module that must be importable."""
    package: str
    """The distribution to install."""
    driver: str
    """The module of this package that drives it."""
    how: str
    share: float
    """Its share of the requested records, so that all clients take about equally long."""
    needs: str = ""
    """A second importable library."""
    plain: bool = False
    """Run without compiled kernels (``TRIOKAFKA_PURE=1``)."""

    @property
    def installed(self) -> bool:
        """Whether its libraries are installed."""
        return find_spec(self.library) is not None and (not self.needs or find_spec(self.needs) is not None)

    def load(self) -> Driver:
        """Return its driver. The library is imported by this call."""
        return cast(Driver, import_module(f"benchmarks.clients.{self.driver}"))


def _ours(how: str, share: float, needs: str = "", *, plain: bool = False) -> Client:
    return Client("triokafka", "triokafka", "drive_triokafka", how, share, needs, plain)


def _confluent(how: str, share: float) -> Client:
    return Client("confluent_kafka", "confluent-kafka", "drive_confluent", how, share)


def _aiokafka(how: str, share: float) -> Client:
    return Client("aiokafka", "aiokafka", "drive_aiokafka", how, share)


def _kafka_python(how: str, share: float) -> Client:
    return Client("kafka", "kafka-python", "drive_kafka_python", how, share)


PRODUCERS: Final[dict[str, Client]] = {
    "triokafka send": _ours("send", 1.0),
    "triokafka send idempotent": _ours("send idempotent", 1.0),
    "triokafka send plain": _ours("send", 0.3, plain=True),
    "triokafka bound send": _ours("bound", 1.0),
    "triokafka send_nowait": _ours("send_nowait", 1.0),
    "triokafka send_many": _ours("send_many", 5.0),
    "triokafka send_many arrow": _ours("arrow", 5.0, "pyarrow"),
    "confluent produce": _confluent("produce", 1.0),
    "confluent produce idempotent": _confluent("produce idempotent", 1.0),
    "confluent produce on_delivery": _confluent("on_delivery", 1.0),
    "confluent produce_batch": _confluent("produce_batch", 1.0),
    "aiokafka send": _aiokafka("send", 0.3),
    "aiokafka send idempotent": _aiokafka("send idempotent", 0.3),
    "aiokafka send_batch": _aiokafka("send_batch", 0.5),
    "kafka-python send": _kafka_python("send", 0.1),
    "kafka-python send idempotent": _kafka_python("send idempotent", 0.1),
}
"""All compared clients, in the order of the tables."""


def result_type(kind: str) -> type[Any]:
    """Return the result type of a kind of measurement: throughput, latency or stall."""
    return {"throughput": Throughput, "latency": Latency, "stall": Stall}[kind]
