"""The effective configuration: dynamic configuration of the image over the broker's static configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from triokafka.broker_stub.config import DEFINITIONS, BrokerConfig
from triokafka.broker_stub.config.broker_config import is_listener_limit
from triokafka.broker_stub.config.security_names import is_dynamic_store
from triokafka.broker_stub.log import config as log_config
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.errors import ConfigurationError, InvalidConfigurationError

logger = logging.getLogger(__name__)


class EffectiveConfiguration:
    """Reads the configuration of one broker, and of topics, from an image.

    Unknown keys of the image are logged and ignored: Kafka may have written them, or the static options changed since.

    Args:
        config: the broker's configuration at its start.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._latest: tuple[Mapping[str, str], Mapping[str, str], BrokerConfig] | None = None

    def broker_config(self, image: MetadataImage) -> BrokerConfig:
        """Return the broker's configuration with dynamic changes; its own override the cluster-wide ones."""
        cluster, own = image.broker_configs(None), image.broker_configs(self.config.node_id)
        if self._latest is None or self._latest[0] is not cluster or self._latest[1] is not own:
            self._latest = (cluster, own, _with_dynamic(self.config, {**_of_cluster(image), **own}))
        return self._latest[2]

    def broker_config_with(self, image: MetadataImage, own: Mapping[str, str]) -> BrokerConfig:
        """Return the broker's configuration as it would be with other dynamic changes of its ``own``."""
        return _with_dynamic(self.config, {**_of_cluster(image), **own})

    def topic_config(self, image: MetadataImage, topic: str) -> LogConfig:
        """Return a topic's configuration: its overrides over the broker's defaults."""
        base, configs = self.broker_config(image).topic_defaults, image.topic_configs(topic)
        try:
            return LogConfig.of_topic(configs, base=base)
        except InvalidConfigurationError as error:
            logger.warning("Topic %s: an invalid option is ignored: %s", topic, error)
            usable = {name: text for name, text in configs.items() if _parses(name, text)}
            return LogConfig.of_topic(usable, base=base)

    def topic_config_of(self, image: MetadataImage) -> Callable[[str], LogConfig]:
        """Return a function from a topic's name to its configuration in ``image``."""
        return partial(self.topic_config, image)


def is_broker_option(name: str) -> bool:
    """Whether a dynamic broker configuration has an effect here."""
    return name in DEFINITIONS or is_listener_limit(name) or is_dynamic_store(name)


def _of_cluster(image: MetadataImage) -> dict[str, str]:
    """Return the cluster-wide configuration. A key store belongs to one broker."""
    return {name: text for name, text in image.broker_configs(None).items() if not is_dynamic_store(name)}


def _with_dynamic(config: BrokerConfig, dynamic: Mapping[str, str]) -> BrokerConfig:
    usable = {name: text for name, text in dynamic.items() if is_broker_option(name)}
    try:
        return config.with_properties(usable)
    except ConfigurationError:
        for name, text in usable.items():
            try:
                config = config.with_properties({name: text})
            except ConfigurationError as error:
                logger.warning("Broker: an invalid option of its dynamic configuration is ignored: %s", error)
        return config


def _parses(name: str, text: str) -> bool:
    try:
        log_config.definition_of(name).parse(text)
    except InvalidConfigurationError:
        return False
    return True
