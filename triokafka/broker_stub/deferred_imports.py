"""What a broker imports when it is first needed, or soon after the start: its first answer does not wait for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

import trio

from triokafka.broker_stub.api import MODULES

if TYPE_CHECKING:
    from triokafka.broker_stub.broker import Broker

logger = logging.getLogger(__name__)

_FIRST_ANSWERS_SECONDS: Final = 0.02
"""How long clients that waited for the start are served before what nobody has asked for is loaded."""
_RETRY_SECONDS: Final = 1.0
"""Time between two attempts while a module cannot be read."""

_PARTS: Final = (
    "triokafka.broker_stub.controller.in_sync",
    "triokafka.broker_stub.coordinators.group_coordinator",
    "triokafka.broker_stub.log.cleaner.cleaner_pass",
    "triokafka.broker_stub.metrics.catalogue",
)
"""What there is besides the handlers."""


async def load_the_rest(broker: Broker) -> None:
    """Import what no request has asked for yet, little by little: later, files may be out of reach or replaced.

    Tries again while modules cannot be read, such as in a storm of connections that takes every file descriptor.
    """
    await trio.sleep(_FIRST_ANSWERS_SECONDS)
    warned = False
    parts: list[Callable[[], object]] = [partial(broker.dispatcher.load, key) for key in broker.dispatcher.handlers]
    parts += [partial(getattr, entry, "coordinator") for entry in broker.coordinators]
    parts += [*(partial(import_module, name) for name in _PARTS)]
    for load in parts:
        while True:
            await trio.lowlevel.checkpoint()
            try:
                load()
            except OSError as error:
                if not warned:
                    warned = True
                    logger.warning("cannot load the rest of the broker now: %s; it tries again every second", error)
                await trio.sleep(_RETRY_SECONDS)
            else:
                break


@cache
def import_everything() -> None:
    """Import all of it now: not within a test, say."""
    for name in (*(f"triokafka.broker_stub.api.{name}" for name in MODULES), *_PARTS):
        import_module(name)
