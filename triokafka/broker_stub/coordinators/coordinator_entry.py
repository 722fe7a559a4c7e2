"""One coordinator in the registry of a broker, created when it is first used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from triokafka.named_tuple import NamedTuple

if TYPE_CHECKING:
    from triokafka.coordinator.runtime.coordinator_runtime import CoordinatorRuntime


class KeyType(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Coordinator(Protocol):
    """A coordinator of any type, as its broker uses it."""

    @property
    def runtime(self) -> CoordinatorRuntime[Any, Any]:
        """The runtime with the shards."""

    @property
    def run(self) -> Callable[[], Awaitable[None]]:
        """Serve the runtime until cancelled, then stop it."""


class InternalTopic(NamedTuple):
    """The topic of a coordinator, and the settings with which a broker creates it."""

    name: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]


K = TypeVar("K", bound=Coordinator)


class CoordinatorEntry(Generic[K]):
    """A coordinator, with its key type in FindCoordinator and its topic.

    Creating a coordinator imports it, which takes a tenth of a broker's start. So the broker creates it when the topic
    exists, when a request needs it, or else soon after the start.

    Args:
        create: imports and returns the coordinator.
        created: called with the new coordinator, so that the broker can run its task.
    """

    def __init__(
        self,
        key_type: KeyType,
        topic: InternalTopic,
        create: Callable[[], K],
        created: Callable[[Coordinator], None],
    ) -> None:
        self.key_type = key_type
        self.topic = topic
        self._create = create
        self._created = created
        self.existing: K | None = None
        """The coordinator; None while it was not needed."""

    @property
    def coordinator(self) -> K:
        """The coordinator; creates it on first use."""
        if self.existing is None:
            self.existing = self._create()
            self._created(self.existing)
        return self.existing
