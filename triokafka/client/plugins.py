"""Plug-ins of a client: created from a class or a name, configured, and closed with the client.

A class is instantiated without arguments and then configured with the client's options. Serializers given as objects
are not configured; interceptors and partitioners always are. If one of them cannot be created, the others are closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Final

from triokafka.client.config import ClientOptions
from triokafka.errors import ConfigurationError

logger = logging.getLogger(__name__)

_SIDES: Final = (("key", True), ("value", False))


class PluginConfig(Mapping[str, Any]):
    """The argument of ``configure``: the client's options by name, and ``plugin_options``.

    It records which ``plugin_options`` were read, so that a warning can name misspelt ones.
    """

    def __init__(self, options: ClientOptions, client_id: str) -> None:
        self._options = options
        self._client_id = client_id
        self._extra: Mapping[str, Any] = getattr(options, "plugin_options", None) or {}
        self._asked: set[str] = set()

    @cached_property
    def _values(self) -> dict[str, Any]:
        own = self._options.by_name()
        own.pop("plugin_options", None)
        return {**own, "client_id": self._client_id, **self._extra}

    def __getitem__(self, name: str) -> Any:
        self._asked.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def unused(self) -> list[str]:
        """Return the ``plugin_options`` that no plug-in read."""
        return [name for name in self._extra if name not in self._asked]


class Plugins:
    """The plug-ins of one client. `close` closes them once, in reverse order."""

    def __init__(self, options: ClientOptions, client_id: str) -> None:
        self.config = PluginConfig(options, client_id)
        self._open: list[Any] = []

    def close(self) -> None:
        """Close all plug-ins; log the errors of each."""
        while self._open:
            plugin = self._open.pop()
            try:
                plugin.close()
            except Exception:
                logger.exception("%r failed in close", plugin)

    def serializers(self, options: ClientOptions, role: str, interface: type[Any]) -> dict[str, Any]:
        """Return the options ``key_<role>`` and ``value_<role>``: objects of the interface, the user's functions, or
        None."""
        return {
            f"{side}_{role}": self._serializer(f"{side}_{role}", getattr(options, f"{side}_{role}"), interface, is_key)
            for side, is_key in _SIDES
        }

    def _serializer(self, option: str, given: Any, interface: type[Any], is_key: bool) -> Any:
        plugin: Any
        plugin, made = _materialize(option, given, interface)
        if isinstance(plugin, interface):
            self._open.append(plugin)
            if made:
                self._configure(option, plugin, lambda: plugin.configure(self.config, is_key))
        elif plugin is not None and not callable(plugin):
            raise ConfigurationError(f"{option}={given!r} is neither a {interface.__name__} nor a function")
        return plugin

    def configured(self, option: str, given: Any, interface: type[Any]) -> Any:
        """Return an interceptor or partitioner, created if necessary and configured."""
        plugin: Any
        plugin, _ = _materialize(option, given, interface)
        if not isinstance(plugin, interface):
            raise ConfigurationError(f"{option}={given!r} is not a {interface.__name__}, nor a class of it")
        self._open.append(plugin)
        self._configure(option, plugin, lambda: plugin.configure(self.config))
        return plugin

    def _configure(self, option: str, plugin: object, configure: Callable[[], None]) -> None:
        try:
            configure()
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(f"{option}: {plugin!r} could not be configured: {error!r}") from error

    def warn_of_unused(self) -> None:
        """Log the ``plugin_options`` that no plug-in read."""
        if unused := self.config.unused():
            logger.warning("plugin_options: no plug-in read %s; check the spelling", ", ".join(sorted(unused)))


def _materialize(option: str, given: Any, interface: type[Any]) -> tuple[Any, bool]:
    """Return the plug-in, and whether this call created it."""
    if isinstance(given, str):
        given = _imported(option, given)
    if not (isinstance(given, type) and issubclass(given, interface)):
        return given, False
    try:
        return given(), True
    except Exception as error:
        raise ConfigurationError(
            f"{option}: {given.__name__} cannot be created without arguments: {error!r}"
        ) from error


def _imported(option: str, path: str) -> Any:
    module, colon, name = path.partition(":")
    try:
        if not (module and colon and name):
            raise ValueError("expected 'module:Name'")
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{option}={path!r} cannot be imported: {error}") from error
