"""Policies of an operator: ``create.topic.policy.class.name`` and ``alter.config.policy.class.name``.

The options name a Python class as ``module:Class``. The controller creates one instance, without arguments, and calls
its `configure`, if it has one, with the broker's options. It consults policies between two changes, so they must not
block. An error rejects only its topic or resource, with `PolicyViolationError` unless it is a protocol error.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from triokafka.broker_stub.config import BrokerConfig
from triokafka.errors import BrokerResponseError, ConfigurationError, PolicyViolationError
from triokafka.named_tuple import NamedTuple

P = TypeVar("P")


class TopicCreation(NamedTuple):
    """A requested topic: its counts or the replicas of each partition, and its configuration."""

    topic: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = MappingProxyType({})


class ConfigChange(NamedTuple):
    """The requested values of a resource; ``type`` is the protocol's number (2 topic, 4 broker, …)."""

    resource_type: int
    resource_name: str
    configs: Mapping[str, str]


class CreateTopicPolicy(Protocol):
    """Decides which topics may be created (KIP-108)."""

    def validate(self, creation: TopicCreation) -> None:
        """Raise `PolicyViolationError`, with a sentence for the client, to refuse."""


class AlterConfigPolicy(Protocol):
    """Decides which values configurations may get (KIP-133)."""

    def validate(self, change: ConfigChange) -> None:
        """Raise `PolicyViolationError`, with a sentence for the client, to refuse."""


class Policies:
    """The policies of a broker.

    Raises:
        ConfigurationError: a policy cannot be imported or created; the message names the option.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._create: CreateTopicPolicy | None = _load(
            "create.topic.policy.class.name", config.create_topic_policy_class_name, config
        )
        self._alter: AlterConfigPolicy | None = _load(
            "alter.config.policy.class.name", config.alter_config_policy_class_name, config
        )

    def check_topic(self, creation: TopicCreation) -> None:
        """Check a topic against the policy. Raises `BrokerResponseError`."""
        if self._create is not None:
            _ask(self._create, creation)

    def check_configs(self, change: ConfigChange) -> None:
        """Check a configuration change against the policy. Raises `BrokerResponseError`."""
        if self._alter is not None:
            _ask(self._alter, change)


def _ask(policy: Any, question: object) -> None:
    try:
        policy.validate(question)
    except BrokerResponseError:
        raise
    except Exception as error:
        raise PolicyViolationError(str(error) or type(error).__name__) from error


def _load(option: str, name: str | None, config: BrokerConfig) -> Any:
    if not name:
        return None
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigurationError(f"{option}={name}: a policy must be a Python class, as module:Class")
    try:
        policy = getattr(importlib.import_module(module), attribute)()
        if hasattr(policy, "configure"):
            policy.configure(config)
    except Exception as error:
        raise ConfigurationError(f"{option}={name}: {type(error).__name__}: {error}") from error
    if not callable(getattr(policy, "validate", None)):
        raise ConfigurationError(f"{option}={name}: the class has no method validate")
    return policy
