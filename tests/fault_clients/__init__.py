"""Several clients, ours included, each of which produces and consumes during a fault of the broker.

`CLIENTS` has them by name. All have the same settings where they exist, and otherwise their defaults: one second for a
request, 20 ms until it is repeated, 15 seconds for a record, a session of 45 seconds.
"""

from __future__ import annotations

from typing import Final

from tests.fault_clients.aiokafka import AiokafkaClient
from tests.fault_clients.client import FaultClient
from tests.fault_clients.confluent import ConfluentClient
from tests.fault_clients.kafka_python import KafkaPythonClient
from tests.fault_clients.ours import OurClient

CLIENTS: Final[dict[str, FaultClient]] = {
    "librdkafka": ConfluentClient(),
    "kafka-python": KafkaPythonClient(),
    "aiokafka": AiokafkaClient(),
    "triokafka": OurClient(),
}
