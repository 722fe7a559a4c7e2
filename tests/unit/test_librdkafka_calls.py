"""Clients of librdkafka in tests (`tests.support.librdkafka_calls`)."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.support import librdkafka_calls
from tests.support.librdkafka_calls import interruptible
from tests.support.waiting import until

CONFIGURATION = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
MAKES: dict[str, Callable[[], Any]] = {
    "consumer": lambda: confluent_kafka.Consumer({**CONFIGURATION, "group.id": "g"}),
    "producer": lambda: confluent_kafka.Producer(CONFIGURATION),
    "admin": lambda: AdminClient(CONFIGURATION),
}


class Interrupted(Exception):
    """Raised by the signal handler."""


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("in_cycle", [False, True], ids=["unreferenced", "held by a cycle"])
def test_client_ends_in_a_thread(make: Callable[[], Any], in_cycle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[threading.Thread] = []
    drop = librdkafka_calls._drop

    def noted(holder: list[Any]) -> None:
        until(lambda: sys.getrefcount(holder[0]) == 2, "another thread holds the client, too")
        ends.append(threading.current_thread())
        drop(holder)

    monkeypatch.setattr(librdkafka_calls, "_drop", noted)
    client = make()
    cycle: list[Any] = [client]
    if in_cycle:
        cycle.append(cycle)
    del client, cycle
    gc.collect()
    until(lambda: bool(ends), "no thread ends the client", 20)
    assert ends[0] is not threading.main_thread()


def test_client_that_refers_to_itself_ends() -> None:
    client = MAKES["admin"]()
    client.itself = client
    del client
    gc.collect()
    until(lambda: not any("of librdkafka" in thread.name for thread in threading.enumerate()), "it did not end", 20)


def test_signal_interrupts_a_call_of_the_main_thread() -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    producer = confluent_kafka.Producer(CONFIGURATION)
    producer.produce("topic", b"nobody takes it")
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        threading.Timer(0.2, signal.pthread_kill, [threading.main_thread().ident, signal.SIGUSR1]).start()
        with pytest.raises(Interrupted):
            producer.flush()
    finally:
        signal.signal(signal.SIGUSR1, before)
        producer.purge()


def test_result_and_error_of_a_call_are_its_own() -> None:
    def call(number: int, *, fails: bool = False) -> int:
        assert threading.current_thread() is not threading.main_thread()
        if fails:
            raise ValueError(number)
        return number

    assert interruptible(call)(3) == 3
    with pytest.raises(ValueError, match="4"):
        interruptible(call)(4, fails=True)
