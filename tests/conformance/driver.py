"""The neutral words in which scenarios talk to a client, whichever it is.

Options have the Java client's names, with ``_`` for ``.``; a driver translates them into its own client's. What a
client has no call or no option for raises `NotOffered`; what the broker refuses raises `Refused` with Kafka's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

Header = tuple[str, bytes | None]
Spot = tuple[str, int]
"""A topic and the number of a partition."""


class NotOffered(Exception):
    """The client has no such call or option; the message says which."""


class Refused(Exception):
    """An error answer. ``code`` is Kafka's number, or None where the client alone came to that conclusion."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"refused with {self.code}: {self.text}"


@dataclass(frozen=True)
class Message:
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = 0
    timestamp: int | None = None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True)
class Delivered:
    """Where a record went; offset and timestamp are -1 where nobody was told."""

    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True)
class Record:
    """A record that was read. ``timestamp_type`` is 0 for the producer's time and 1 for the broker's."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


@dataclass(frozen=True)
class Partition:
    """Who keeps a partition."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class Topic:
    """A topic as it is described; ``internal`` and ``id`` are None where the client does not say."""

    internal: bool | None
    partitions: Mapping[int, Partition]
    id: str | None = None
    """In the client's own way of writing it."""


@dataclass(frozen=True)
class Cluster:
    """The cluster as it is described."""

    id: str | None
    controller: int
    nodes: tuple[int, ...]


DYNAMIC_TOPIC: Final = 1
DYNAMIC_BROKER: Final = 2
DYNAMIC_DEFAULT_BROKER: Final = 3
STATIC_BROKER: Final = 4
DEFAULT: Final = 5


@dataclass(frozen=True)
class Config:
    """One configuration value and where it comes from."""

    value: str | None
    source: int
    read_only: bool
    sensitive: bool


@dataclass(frozen=True)
class Member:
    """One member of a group as it is described."""

    id: str
    client_id: str
    host: str
    assignment: frozenset[Spot] = frozenset()


@dataclass(frozen=True)
class Group:
    """A group as it is described: Kafka's word for its state, and the name of its assignor."""

    state: str
    assignor: str
    members: tuple[Member, ...] = field(default=())


class Options:
    """Translates options: ``names`` has the client's name for each, or None for a value that needs more than a name."""

    def __init__(self, client: str, names: Mapping[str, str]) -> None:
        self._client = client
        self._names = names

    def translate(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The client's own options; raises `NotOffered` for what it does not have."""
        for name in options:
            if name not in self._names:
                raise NotOffered(f"{self._client} has no option {name.replace('_', '.')}")
        return {self._names[name]: value for name, value in options.items()}


class ConsumerDriver:
    """One consumer. Not for several threads at once."""

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group, for these topics."""
        self._lacks("subscriptions")

    def subscribe_pattern(self, pattern: str) -> None:
        """Join the group, for all topics whose whole name the pattern matches."""
        self._lacks("subscriptions by pattern")

    def subscribe_server_pattern(self, pattern: str) -> None:
        """Join a group of the new protocol, for all topics that the broker finds to match the pattern as a whole."""
        self._lacks("patterns that the broker matches")

    def assign(self, topic: str, offsets: Mapping[int, int | None]) -> None:
        """Read these partitions, from an offset or from where the group or the reset policy says."""
        self._lacks("assignments by hand")

    def poll(self) -> list[Record]:
        """What has come within a moment; raises `Refused` for an error that the client hands out."""
        self._lacks("polling")

    def assignment(self) -> set[Spot]:
        """The partitions that this member has now."""
        self._lacks("its assignment")

    def position(self, spot: Spot) -> int:
        """The offset that is read next."""
        self._lacks("its position")

    def seek(self, spot: Spot, offset: int) -> None:
        """Read on from there."""
        self._lacks("seeking")

    def seek_to_beginning(self, spot: Spot) -> None:
        """Read on from the first record."""
        self._lacks("seeking to the beginning")

    def seek_to_end(self, spot: Spot) -> None:
        """Read on from the end."""
        self._lacks("seeking to the end")

    def pause(self, spot: Spot) -> None:
        """Fetch no more of a partition."""
        self._lacks("pausing")

    def resume(self, spot: Spot) -> None:
        """Fetch it again."""
        self._lacks("resuming")

    def commit(self, offsets: Mapping[Spot, tuple[int, str]] | None = None) -> None:
        """Commit what was read, or these offsets, and wait for the answer."""
        self._lacks("commits")

    def committed(self, spot: Spot) -> int | None:
        """What the group has committed, or None."""
        self._lacks("committed offsets")

    def beginning(self, spot: Spot) -> int:
        """The first offset of a partition."""
        self._lacks("beginning offsets")

    def end(self, spot: Spot) -> int:
        """The end of a partition."""
        self._lacks("end offsets")

    def offset_for_time(self, spot: Spot, timestamp: int) -> int | None:
        """The first offset whose timestamp is not before."""
        self._lacks("offsets by time")

    def close(self) -> None:
        """Leave the group and close the connections."""
        self._lacks("closing")

    def _lacks(self, what: str) -> NoReturn:
        raise NotOffered(f"the consumer does not offer {what}")


class ClientDriver:
    """One client library connected to one broker, for the length of one scenario.

    ``patience`` is how many seconds a single call may take.
    """

    name = ""

    def __init__(self, bootstrap: str, patience: float) -> None:
        self.bootstrap = bootstrap
        self.patience = patience

    def close(self) -> None:
        """Close everything that was opened."""

    def produce(self, topic: str, messages: Sequence[Message], **options: Any) -> list[Delivered | Refused]:
        """Send in this order through one producer, wait for every answer; the outcome of each, in order."""
        self._lacks("producing")

    def consumer(self, group: str | None = None, **options: Any) -> ConsumerDriver:
        """A consumer that `close` closes."""
        self._lacks("consuming")

    def create_topics(
        self,
        names: Sequence[str],
        partitions: int = 1,
        replication: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> dict[str, int]:
        """Error codes by name; 0 for created."""
        self._lacks("creating topics")

    def delete_topics(self, names: Sequence[str]) -> dict[str, int]:
        """Error codes by name; 0 for deleted."""
        self._lacks("deleting topics")

    def create_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        """Grow a topic to so many partitions."""
        self._lacks("creating partitions")

    def topics(self) -> set[str]:
        """Names of all topics."""
        self._lacks("listing topics")

    def describe_topic(self, name: str) -> Topic:
        """One topic."""
        self._lacks("describing topics")

    def describe_topic_by_id(self, topic_id: str) -> Topic:
        """One topic, by its id."""
        self._lacks("describing topics by id")

    def delete_topic_by_id(self, topic_id: str) -> None:
        """Delete one topic by its id; raises `Refused`."""
        self._lacks("deleting topics by id")

    def describe_cluster(self) -> Cluster:
        """Who is there."""
        self._lacks("describing the cluster")

    def describe_configs(self, kind: str, name: str) -> dict[str, Config]:
        """The configuration of a "topic" or "broker"."""
        self._lacks("describing configurations")

    def incremental_alter(
        self, kind: str, name: str, changes: Mapping[str, tuple[str, str | None]], *, validate_only: bool = False
    ) -> None:
        """Change some keys; each has an operation out of "set", "delete", "append", "subtract"."""
        self._lacks("incremental changes of configurations")

    def alter_configs(self, kind: str, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace the whole configuration (the older call)."""
        self._lacks("replacing configurations")

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete what lies before the offsets (-1: everything); the new first offsets."""
        self._lacks("deleting records")

    def list_offsets(self, topic: str, specs: Mapping[int, str | int]) -> dict[int, tuple[int, int]]:
        """Offset and timestamp for "earliest", "latest", "max_timestamp", or at a timestamp; -1 for none."""
        self._lacks("listing offsets")

    def groups(self, states: Iterable[str] | None = None, types: Iterable[str] | None = None) -> set[str]:
        """Ids of all groups, or of those in certain states and of certain types."""
        self._lacks("listing groups")

    def describe_group(self, group: str) -> Group:
        """One group."""
        self._lacks("describing groups")

    def group_offsets(self, group: str, *, require_stable: bool = False) -> dict[Spot, tuple[int, str]]:
        """What a group has committed: offsets and the texts beside them.

        With ``require_stable`` offsets that an open transaction may still replace are refused, or left out.
        """
        self._lacks("listing a group's offsets")

    def alter_group_offsets(self, group: str, offsets: Mapping[Spot, int]) -> None:
        """Commit for an empty group."""
        self._lacks("altering a group's offsets")

    def delete_group_offsets(self, group: str, spots: Sequence[Spot]) -> None:
        """Forget what a group has committed."""
        self._lacks("deleting a group's offsets")

    def delete_group(self, group: str) -> None:
        """Forget an empty group."""
        self._lacks("deleting groups")

    def remove_static_member(self, group: str, instance: str) -> None:
        """Put a static member out of its group."""
        self._lacks("removing members")

    def create_topic(self, name: str, partitions: int = 1, replication: int = 1, **more: Any) -> None:
        """Create one topic; raises `Refused`."""
        (code,) = self.create_topics([name], partitions, replication, **more).values()
        if code:
            raise Refused(code, f"{name} was not created")

    def delete_topic(self, name: str) -> None:
        """Delete one topic; raises `Refused`."""
        (code,) = self.delete_topics([name]).values()
        if code:
            raise Refused(code, f"{name} was not deleted")

    def _lacks(self, what: str) -> NoReturn:
        raise NotOffered(f"{self.name} does not offer {what}")
