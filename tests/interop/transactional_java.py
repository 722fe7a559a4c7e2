"""Kafka's own Java producer behind the interface of the transactional drivers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tests.conformance.driver import Refused as JavaRefused
from tests.conformance.java_driver import JavaDriver, JavaProcess
from tests.support.transactional_drivers import TIMEOUT, Refused, TransactionalDriver

_AT_ONCE: Final = 1_000
_FENCED: Final = ("ProducerFencedException", "InvalidProducerEpochException")


class JavaTransactions(TransactionalDriver):
    """A ``KafkaProducer`` with a transactional id, in a process shared by several.

    Records are passed to the process together: with the next other call, or once there are `_AT_ONCE`.
    """

    name = "Java"

    def __init__(self, process: JavaProcess, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        super().__init__(bootstrap, transactional_id, timeout_ms)
        self._driver = JavaDriver(process, bootstrap, TIMEOUT)
        options = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        self._number = self._driver.call("producer", options=options)
        self._records: list[tuple[int, str]] = []
        self._topic = ""

    def _call(self, call: str, **arguments: Any) -> None:
        self._hand_over()
        with _refusals():
            self._driver.call(call, producer=self._number, **arguments)

    def _hand_over(self) -> None:
        records, self._records = self._records, []
        if records:
            with _refusals():
                self._driver.call("send", producer=self._number, topic=self._topic, records=records)

    def init(self) -> None:
        self._call("init")

    def begin(self) -> None:
        self._call("begin")

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        if topic != self._topic or len(self._records) >= _AT_ONCE:
            self._hand_over()
        self._topic = topic
        self._records.append((partition, b64encode(value).decode()))

    def flush(self) -> None:
        self._call("flush")

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self._call("send_offsets", group=group, offsets=[[*spot, offset] for spot, offset in offsets.items()])

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        self._records.clear()
        self._driver.close()


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except JavaRefused as refusal:
        raise Refused(refusal, fatal=refusal.text.startswith(_FENCED)) from refusal
