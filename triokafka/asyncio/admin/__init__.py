"""The names of ``aiokafka.admin``."""

from __future__ import annotations

from triokafka.asyncio.admin import config_resource as config_resource  # programs read it as an attribute
from triokafka.asyncio.admin.client import AIOKafkaAdminClient
from triokafka.asyncio.admin.types import NewPartitions, NewTopic, RecordsToDelete

__all__ = ["AIOKafkaAdminClient", "NewPartitions", "NewTopic", "RecordsToDelete"]
