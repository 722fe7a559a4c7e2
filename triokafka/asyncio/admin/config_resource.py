"""The names of ``aiokafka.admin.config_resource``."""

from __future__ import annotations

from triokafka.asyncio.admin.types import ConfigResource, ConfigResourceType

__all__ = ["ConfigResource", "ConfigResourceType"]
