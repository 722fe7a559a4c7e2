"""The names of ``aiokafka.admin``."""

from __future__ import annotations

from triokafka.asyncio.admin.client import AIOKafkaAdminClient
from triokafka.asyncio.admin.types import NewPartitions, NewTopic, RecordsToDelete

__all__ = ["AIOKafkaAdminClient", "NewPartitions", "NewTopic", "RecordsToDelete"]
