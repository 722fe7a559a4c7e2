"""The bootstrap of a client at construction, as in kafka-python, and whether it succeeded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triokafka
from triokafka.blocking.options import admin_options
from triokafka.errors import KafkaError, KafkaTimeoutError
from triokafka.loop_thread import LoopThread


def bootstrap(loop: LoopThread, config: Mapping[str, Any], timeout_ms: float | None) -> None:
    """Wait until a broker of ``bootstrap_servers`` has answered, at most ``timeout_ms`` milliseconds.

    Raises:
        KafkaTimeoutError: no broker answered in time.
    """
    loop.call(_ask, admin_options(config), timeout_ms)


async def _ask(options: dict[str, Any], timeout_ms: float | None) -> None:
    limit = float("inf") if timeout_ms is None else timeout_ms
    try:
        async with triokafka.AdminClient(**options, close_timeout_ms=0) as admin:
            await admin.describe_cluster(timeout_ms=limit)
    except KafkaError as error:
        if not error.retriable:
            raise
        raise KafkaTimeoutError(f"Unable to bootstrap from {options['bootstrap_servers']}: {error}") from error
