"""Imports that a broker defers: a module is imported at its first use, or else soon after the start.

The first response then does not wait for modules that it does not use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Final

import trio

from triokafka.broker_stub.api import MODULES
from triokafka.broker_stub.coordinators.registry import CoordinatorRegistry
from triokafka.broker_stub.request.dispatcher import Dispatcher

logger = logging.getLogger(__name__)

_FIRST_ANSWERS_SECONDS: Final = 0.02
"""The time for clients that waited for the broker's start before it imports the remaining modules."""
_RETRY_SECONDS: Final = 1.0
"""Time between two attempts while a module cannot be read."""

_PARTS: Final = (
    "triokafka.broker_stub.controller.alter_partition",
    "triokafka.broker_stub.coordinators.group_coordinator_config",
    "triokafka.broker_stub.coordinators.transaction_coordinator_config",
    "triokafka.broker_stub.log.cleaner.cleaner_pass",
    "triokafka.broker_stub.metrics.broker_catalogue",
    "triokafka.broker_stub.metrics.controller_catalogue",
)
"""Deferred modules other than handlers."""


async def load_the_rest(dispatcher: Dispatcher, coordinators: CoordinatorRegistry) -> None:
    """Import, one after the other, the modules that no request has used yet.

    Later they might be unreadable or replaced.

    Retries while modules cannot be read, for example in a storm of connections that takes every file descriptor.
    """
    await trio.sleep(_FIRST_ANSWERS_SECONDS)
    warned = False
    parts: list[Callable[[], object]] = [partial(dispatcher.load, key) for key in dispatcher.handlers]
    parts += [partial(getattr, entry, "coordinator") for entry in coordinators]
    parts += [partial(import_module, name) for name in _PARTS]
    for load in parts:
        while True:
            await trio.lowlevel.checkpoint()
            try:
                load()
            except OSError as error:
                if not warned:
                    warned = True
                    logger.warning("Deferred modules cannot be loaded: %s. The broker retries every second", error)
                await trio.sleep(_RETRY_SECONDS)
            else:
                break


@cache
def import_everything() -> None:
    """Import every deferred module now, so that a test does not pay for it later."""
    for name in (*(f"triokafka.broker_stub.api.{name}" for name in MODULES), *_PARTS):
        import_module(name)
