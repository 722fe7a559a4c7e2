"""The current broker configuration: static options with dynamic changes applied while the broker runs."""

from __future__ import annotations

from triokafka.broker_stub.config.broker_config import BrokerConfig


class CurrentConfig:
    """Holds the current configuration of one broker.

    Readers access `current` each time they need an option that may change. The metadata publisher calls `update`.
    """

    __slots__ = ("current",)

    def __init__(self, static: BrokerConfig) -> None:
        self.current = static

    def update(self, config: BrokerConfig) -> None:
        """Replace the current configuration."""
        self.current = config
