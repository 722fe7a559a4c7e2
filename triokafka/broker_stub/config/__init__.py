"""The broker's configuration with Kafka's names: options and their definitions, listeners, ``.properties`` files."""

from triokafka.broker_stub.config.broker_config import DEFINITIONS, BrokerConfig
from triokafka.broker_stub.config.definition import ConfigDefinition, UpdateMode
from triokafka.broker_stub.config.listeners import SECURITY_PROTOCOLS, ListenerSpec
from triokafka.broker_stub.config.properties import format_properties, parse_properties
from triokafka.security.secret import Secret

__all__ = [
    "DEFINITIONS",
    "SECURITY_PROTOCOLS",
    "BrokerConfig",
    "ConfigDefinition",
    "ListenerSpec",
    "Secret",
    "UpdateMode",
    "format_properties",
    "parse_properties",
]
