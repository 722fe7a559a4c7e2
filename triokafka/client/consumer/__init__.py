"""The consumer: `Consumer` is the public class; the other modules are its parts."""

from __future__ import annotations

from triokafka.client.consumer.batches import Batches, FetchedBatch
from triokafka.client.consumer.consumer import Consumer
from triokafka.client.consumer.deserialization import UndeserializedBytes
from triokafka.client.consumer.health import ConsumerHealth, PartitionHealth
from triokafka.client.consumer.interceptors import ConsumerInterceptor
from triokafka.client.consumer.rebalance_listener import ConsumerRebalanceListener
from triokafka.client.consumer.subscription_state import SubscriptionPattern

__all__ = [
    "Batches",
    "Consumer",
    "ConsumerHealth",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
    "FetchedBatch",
    "PartitionHealth",
    "SubscriptionPattern",
    "UndeserializedBytes",
]
