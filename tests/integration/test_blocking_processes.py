"""Blocking clients in a process that ends, forks, or is interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.interrupts import interrupt_of_a_wait
from triokafka.blocking import KafkaConsumer, KafkaProducer, TopicPartition
from triokafka.blocking.errors import IllegalStateError

ROOT = Path(__file__).parent.parent.parent


def run_program(program: str, *arguments: str, expect: int = 0) -> str:
    """Run a program in its own process, which must end by itself, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == expect, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def count(bootstrap: str, topic: str) -> int:
    """Return the number of records in a topic of one partition."""
    with KafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        partition = TopicPartition(topic, 0)
        return consumer.end_offsets([partition])[partition]


def test_records_are_delivered_when_a_program_ends_without_closing_its_producer(bootstrap: str, topic: str) -> None:
    program = """
import sys
from triokafka.blocking import KafkaProducer
producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
for number in range(1000):
    producer.send(sys.argv[2], b"%d" % number)
"""
    run_program(program, bootstrap, topic)
    assert count(bootstrap, topic) == 1_000


def test_garbage_collected_producer_delivers_its_records(bootstrap: str, topic: str) -> None:
    program = """
import gc, sys, threading, time
from triokafka.blocking import KafkaProducer
def work():
    producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
    return producer.send(sys.argv[2], b"value")
future = work()
gc.collect()
print(future.get(timeout=60).offset)
"""
    assert run_program(program, bootstrap, topic) == "0\n"


def test_a_program_may_end_with_open_consumers_and_an_exception(bootstrap: str, topic: str, group: str) -> None:
    program = """
import sys
from triokafka.blocking import KafkaAdminClient, KafkaConsumer, KafkaProducer
producer = KafkaProducer(bootstrap_servers=sys.argv[1])
producer.send(sys.argv[2], b"value").get(timeout=60)
admin = KafkaAdminClient(bootstrap_servers=sys.argv[1])
consumer = KafkaConsumer(sys.argv[2], bootstrap_servers=sys.argv[1], group_id=sys.argv[3], auto_offset_reset="earliest")
print(next(consumer).value)
sys.exit(3)
"""
    assert run_program(program, bootstrap, topic, group, expect=3) == "b'value'\n"


def test_a_forked_child_refuses_its_parents_clients_and_creates_its_own(bootstrap: str, topic: str) -> None:
    program = """
import os, sys
from triokafka.blocking import KafkaConsumer, KafkaProducer
from triokafka.blocking.errors import IllegalStateError
producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
consumer = KafkaConsumer(bootstrap_servers=sys.argv[1])
producer.send(sys.argv[2], b"parent")
child = os.fork()
if not child:
    refused = 0
    for call in (lambda: producer.send("other", b""), producer.flush, consumer.poll, consumer.topics):
        try:
            call()
        except IllegalStateError as error:
            refused += "forked" in str(error)
    producer.close()
    consumer.close()
    with KafkaProducer(bootstrap_servers=sys.argv[1]) as own:
        own.send(sys.argv[2], b"child").get(timeout=60)
    os._exit(refused)
_, status = os.waitpid(child, 0)
producer.close()
print(os.waitstatus_to_exitcode(status))
"""
    assert run_program(program, bootstrap, topic) == "4\n"
    assert count(bootstrap, topic) == 2


def test_sending_to_a_known_topic_in_a_forked_child_is_refused_too(bootstrap: str, topic: str) -> None:
    program = """
import os, sys
from triokafka.blocking import KafkaProducer
from triokafka.blocking.errors import IllegalStateError
producer = KafkaProducer(bootstrap_servers=sys.argv[1])
producer.send(sys.argv[2], b"parent").get(timeout=60)
child = os.fork()
if not child:
    try:
        producer.send(sys.argv[2], b"child")
    except IllegalStateError:
        os._exit(7)
    os._exit(1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    assert run_program(program, bootstrap, topic) == "7\n"


def test_a_forked_child_can_close_a_producer_that_a_thread_was_using(bootstrap: str, topic: str) -> None:
    """The exit of a child must work, too: it inherits the functions registered with `atexit`."""
    program = """
import os, sys
from triokafka.blocking import KafkaProducer
producer = KafkaProducer(bootstrap_servers=sys.argv[1])
producer.send(sys.argv[2], b"parent").get(timeout=60)
with producer._staging.lock:  # as if another thread was sending
    child = os.fork()
    if not child:
        producer.close()
        os._exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    assert run_program(program, bootstrap, topic) == "7\n"


@pytest.mark.parametrize("waiting", ["poll", "iteration"])
def test_an_interrupt_ends_a_wait_for_records_and_loses_none(bootstrap: str, topic: str, waiting: str) -> None:
    """Ctrl-C in `poll` raises at once; the consumer is usable afterwards."""
    partition = TopicPartition(topic, 0)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer, KafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        producer.send(topic, b"first").get(timeout=60)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        assert next(consumer).value == b"first"
        interrupt = interrupt_of_a_wait()
        with pytest.raises(KeyboardInterrupt):
            interrupt.start()
            if waiting == "poll":
                consumer.poll(timeout_ms=60_000)
            else:
                next(consumer)
        interrupt.join()
        producer.send(topic, b"second").get(timeout=60)
        assert next(consumer).value == b"second"


def test_an_interrupt_ends_a_flush_that_waits(bootstrap: str, topic: str) -> None:
    program = """
import os, signal, sys, threading
from triokafka.blocking import KafkaProducer
producer = KafkaProducer(bootstrap_servers=sys.argv[1])
producer.send(sys.argv[2], b"").get(timeout=60)
future = producer.send(sys.argv[2], b"")
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    while True:
        producer.flush()
        future.get()
except KeyboardInterrupt:
    print("interrupted")
print(producer.send(sys.argv[2], b"").get(timeout=60).offset)
"""
    assert run_program(program, bootstrap, topic) == "interrupted\n2\n"


def test_all_clients_of_a_process_share_one_thread_which_does_not_keep_it_alive(bootstrap: str, topic: str) -> None:
    program = """
import sys, threading
from triokafka.blocking import KafkaAdminClient, KafkaConsumer, KafkaProducer
clients = [kind(bootstrap_servers=sys.argv[1]) for kind in (KafkaAdminClient, KafkaConsumer, KafkaProducer) * 3]
print([(thread.name, thread.daemon) for thread in threading.enumerate() if thread is not threading.main_thread()])
"""
    assert run_program(program, bootstrap) == "[('triokafka', True)]\n"


def test_a_blocking_call_inside_of_the_loop_is_refused() -> None:
    """The call would wait for itself."""
    from triokafka.loop_thread import loop_thread

    loop = loop_thread()

    async def work() -> Any:
        return loop.call(work)

    with pytest.raises(IllegalStateError, match="wait for itself"):
        loop.call(work)
