"""Programs written for kafka-python print the same output after only their import is changed.

Each runs twice against the same broker: unchanged, and with ``from kafka`` replaced.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parent.parent.parent

PROGRAMS: Final[dict[str, str]] = {
    "futures": """
from kafka import KafkaProducer
from kafka.errors import KafkaError

producer = KafkaProducer(bootstrap_servers=[bootstrap])
future = producer.send(topic, b"raw_bytes")
try:
    record_metadata = future.get(timeout=10)
except KafkaError as error:
    print("failed", error)
print(record_metadata.topic == topic, record_metadata.partition, record_metadata.offset)
producer.send(topic, key=b"foo", value=b"bar", headers=[("a", b"1")])
producer.flush()
print(future.succeeded(), future.is_done, future.exception, type(future.value).__name__)
producer.close()
""",
    "callbacks": """
import json
from kafka import KafkaProducer
from kafka.serializer import JsonSerializer

sent, failed = [], []
producer = KafkaProducer(bootstrap_servers=bootstrap, value_serializer=JsonSerializer(), retries=5, acks="all",
                         compression_type="gzip", linger_ms=5)
for number in range(100):
    producer.send(topic, {"number": number}).add_callback(sent.append).add_errback(failed.append)
producer.flush()
print([metadata.offset for metadata in sent] == list(range(100)), failed)
print(sorted(producer.partitions_for(topic)))
producer.close()
""",
    "iteration": """
import json
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

with KafkaProducer(bootstrap_servers=bootstrap) as producer:
    for number in range(10):
        producer.send(topic, key=b"key", value=json.dumps(number).encode(), timestamp_ms=1_000 + number)
consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=1000)
for message in consumer:
    print(message.topic == topic, message.partition, message.offset, message.key, message.value, message.timestamp)
    print(message.timestamp_type, message.serialized_key_size, message.serialized_value_size, list(message.headers))
    if message.offset == 4:
        break
partition = TopicPartition(topic, 0)
print(consumer.position(partition), consumer.assignment() == {partition}, consumer.subscription() == {topic})
print(consumer.beginning_offsets([partition])[partition], consumer.end_offsets([partition])[partition])
print(consumer.offsets_for_times({partition: 1_007})[partition].offset)
consumer.seek(partition, 8)
print([message.value for message in consumer])
consumer.close()
""",
    "manual commits": """
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

class Listener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        pass
    def on_partitions_assigned(self, assigned):
        if assigned:  # a member that joined before it knew the topic has none at first
            print("assigned", [(one.topic == topic, one.partition) for one in sorted(assigned)])

with KafkaProducer(bootstrap_servers=bootstrap) as producer:
    for number in range(20):
        producer.send(topic, b"%d" % number)
partition = TopicPartition(topic, 0)
consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False,
                         auto_offset_reset="earliest", max_poll_records=7)
consumer.subscribe([topic], listener=Listener())
seen = []
while len(seen) < 14:
    for records in consumer.poll(timeout_ms=1000).values():
        seen.extend(record.offset for record in records)
        last = records[-1]
        consumer.commit({partition: OffsetAndMetadata(last.offset + 1, "", -1)})
print(seen, consumer.committed(partition), consumer.position(partition))
future = consumer.commit_async({partition: OffsetAndMetadata(3, "note", -1)})
while not future.is_done:
    consumer.poll(timeout_ms=10)
print(future.succeeded(), consumer.committed(partition, metadata=True)[:2])
consumer.pause(partition)
print(consumer.paused() == {partition}, consumer.poll(timeout_ms=100))
consumer.close()
""",
    "administration": """
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError

admin = KafkaAdminClient(bootstrap_servers=bootstrap)
created = admin.create_topics([NewTopic(name=topic, num_partitions=2, replication_factor=1)])
print([(one["name"] == topic, one["error_code"], one["num_partitions"]) for one in created["topics"]])
try:
    admin.create_topics([NewTopic(name=topic, num_partitions=2, replication_factor=1)])
except TopicAlreadyExistsError:
    print("exists")
admin.create_partitions({topic: NewPartitions(total_count=3)})
admin.wait_for_topics([topic])
described = admin.describe_topics([topic])[0]
print(topic in admin.list_topics(), [one["partition_index"] for one in described["partitions"]])
resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "60000"})
print([list(one.values()) for one in admin.alter_configs([resource]).values()])
configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]
print({name: (value["value"], value["config_source"], value["config_type"]) for name, value in configs.items()})
print(len(admin.describe_cluster()["brokers"]))
print([one["error_code"] for one in admin.delete_topics([topic])["topics"]])
admin.close()
""",
    "wrong use": """
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

producer = KafkaProducer(bootstrap_servers=bootstrap)
consumer = KafkaConsumer(bootstrap_servers=bootstrap)
def attempt(label, call):
    try:
        call()
        print(label, "worked")
    except Exception as error:
        print(label, isinstance(error, KafkaError), [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in
              ("ValueError", "TypeError", "IllegalStateError", "MessageSizeTooLargeError", "AssertionError")])
attempt("no value", lambda: producer.send(topic))
attempt("text", lambda: producer.send(topic, "text"))
attempt("headers", lambda: producer.send(topic, b"", headers={}))
attempt("size", lambda: producer.send(topic, b"x" * 2_000_000))
attempt("partition", lambda: producer.send(topic, b"", partition=77))
attempt("seek", lambda: consumer.seek(TopicPartition(topic, 0), 0))
attempt("position", lambda: consumer.position(TopicPartition(topic, 0)))
attempt("commit", consumer.commit)
attempt("poll", lambda: consumer.poll(max_records=0))
attempt("subscribe", lambda: consumer.subscribe([]))
attempt("subscribe", lambda: consumer.subscribe("text"))
attempt("option", lambda: KafkaProducer(no_such_option=1))
attempt("option", lambda: KafkaConsumer(no_such_option=1))
producer.close()
consumer.close()
attempt("closed", lambda: producer.send(topic, b""))
attempt("closed", consumer.poll)
print(list(consumer))
""",
}


def output_of(program: str, bootstrap: str) -> str:
    """Return the output of a program, which gets its own topic and group."""
    names = f"bootstrap, topic, group = {bootstrap!r}, 't-{uuid.uuid4().hex}', 'g-{uuid.uuid4().hex}'\n"
    done = subprocess.run(
        [sys.executable, "-c", names + program], capture_output=True, text=True, cwd=ROOT, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_same_with_the_other_import(bootstrap: str, name: str) -> None:
    program = PROGRAMS[name]
    theirs = output_of(program, bootstrap)
    assert theirs
    assert output_of(program.replace("from kafka", "from triokafka.blocking"), bootstrap) == theirs
