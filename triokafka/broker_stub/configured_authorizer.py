"""The authorizer that ``authorizer.class.name`` names."""

from __future__ import annotations

import importlib
from typing import Any, Final

from triokafka.broker_stub.authorizer import Authorizer
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.config.broker_config import DEFINITIONS
from triokafka.errors import ConfigurationError

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ENTRY_POINT_GROUP: Final = "triokafka.authorizers"
_OPTION: Final = "authorizer.class.name"


def configured_authorizer(config: BrokerConfig) -> Authorizer | None:
    """Return a new, configured authorizer; None without ``authorizer.class.name``.

    Raises:
        ConfigurationError: the class cannot be found, created or configured. A node must not start without the access
            control that its operator asked for.
    """
    name = config.authorizer_class_name.strip()
    if not name:
        return None
    try:
        authorizer = _class(name)()
        if isinstance(authorizer, Authorizer):
            options = {known: config.text(known) for known in DEFINITIONS}
            authorizer.configure({known: text for known, text in options.items() if text is not None})
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(f"{_OPTION}={name}: {type(error).__name__}: {error}") from error
    if not isinstance(authorizer, Authorizer):
        raise ConfigurationError(f"{_OPTION}={name}: the class is not a triokafka.broker_stub.authorizer.Authorizer")
    return authorizer


def _class(name: str) -> Any:
    if name == STANDARD_AUTHORIZER:
        from triokafka.broker_stub.standard_authorizer import StandardAuthorizer

        return StandardAuthorizer
    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(importlib.import_module(module), attribute)
    from importlib.metadata import entry_points

    for found in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return found.load()
    raise ConfigurationError(
        f"{_OPTION}={name}: no such authorizer. Name {STANDARD_AUTHORIZER}, a Python class as module:Class, "
        f"or an entry point in the group {ENTRY_POINT_GROUP}"
    )
