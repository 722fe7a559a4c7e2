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
    from triokafka.broker_stub.server import Broker

logger = logging.getLogger(__name__)

_FIRST_ANSWERS_SECONDS: Final = 0.02
"""How long clients that waited for the start are served before what nobody has asked for is loaded."""

_PARTS: Final = (
    "triokafka.broker_stub.controller.describe",
    "triokafka.broker_stub.controller.in_sync",
    "triokafka.broker_stub.group_service",
    "triokafka.broker_stub.log.cleaner.cleaning",
    "triokafka.broker_stub.metrics",
)
"""What there is besides the handlers."""


async def load_the_rest(broker: Broker) -> None:
    """Import what no request has asked for yet, little by little: later, files may be out of reach or replaced."""
    await trio.sleep(_FIRST_ANSWERS_SECONDS)
    parts: list[Callable[[], object]] = [partial(broker.dispatcher.load, key) for key in broker.dispatcher.handlers]
    parts += [lambda: broker.group_coordinator, *(partial(import_module, name) for name in _PARTS)]
    for load in parts:
        try:
            load()
        except OSError as error:  # too many files are open, say; a request will try it again
            logger.warning("a part of the broker is not loaded yet: %s", error)
        await trio.lowlevel.checkpoint()


@cache
def import_everything() -> None:
    """Import all of it now: not within a test, say."""
    for name in (*(f"triokafka.broker_stub.api.{name}" for name in MODULES), *_PARTS):
        import_module(name)
