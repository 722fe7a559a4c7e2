"""The neutral interface between scenarios and the clients.

Options have the Java client's names, with ``_`` for ``.``; a driver translates them into its own client's. A missing
call or option of a client raises `NotOffered`; a refusal of the broker raises `Refused` with Kafka's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

Header = tuple[str, bytes | None]
Spot = tuple[str, int]
"""A topic and the number of a partition."""


class NotOffered(Exception):
    """The client has no such call or option; the message names it."""


class Refused(Exception):
    """An error response. ``code`` is Kafka's number, or None for an error that the client itself raised."""

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
    """The position of a written record; offset and timestamp are -1 if the broker did not report them."""

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
    """The replicas of a partition."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class Topic:
    """The description of a topic; ``internal`` and ``id`` are None if the client does not report them."""

    internal: bool | None
    partitions: Mapping[int, Partition]
    id: str | None = None
    """In the client's own way of writing it."""


@dataclass(frozen=True)
class Cluster:
    """The description of the cluster."""

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
    """A configuration value and its source."""

    value: str | None
    source: int
    read_only: bool
    sensitive: bool


@dataclass(frozen=True)
class Member:
    """The description of a group member."""

    id: str
    client_id: str
    host: str
    assignment: frozenset[Spot] = frozenset()


@dataclass(frozen=True)
class Group:
    """The description of a group: Kafka's name for its state, and the name of its assignor."""

    state: str
    assignor: str
    members: tuple[Member, ...] = field(default=())


class Options:
    """Translates options: ``names`` has the client's name for each, or None for a value that needs more than a new
    name.
    """

    def __init__(self, client: str, names: Mapping[str, str]) -> None:
        self._client = client
        self._names = names

    def translate(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the client's own options; raise `NotOffered` for an option that it does not have."""
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
        """Join a group of the consumer protocol, for all topics whose whole name matches the pattern on the broker."""
        self._lacks("patterns that the broker matches")

    def assign(self, topic: str, offsets: Mapping[int, int | None]) -> None:
        """Read these partitions from an offset, or from the group's offset or the reset policy."""
        self._lacks("assignments by hand")

    def poll(self) -> list[Record]:
        """Return the records that arrive within a moment; raise `Refused` for an error from the client."""
        self._lacks("polling")

    def assignment(self) -> set[Spot]:
        """Return the partitions that this member has now."""
        self._lacks("its assignment")

    def position(self, spot: Spot) -> int:
        """Return the offset of the next record."""
        self._lacks("its position")

    def seek(self, spot: Spot, offset: int) -> None:
        """Continue at this offset."""
        self._lacks("seeking")

    def seek_to_beginning(self, spot: Spot) -> None:
        """Continue at the first record."""
        self._lacks("seeking to the beginning")

    def seek_to_end(self, spot: Spot) -> None:
        """Continue at the end."""
        self._lacks("seeking to the end")

    def pause(self, spot: Spot) -> None:
        """Fetch no more of a partition."""
        self._lacks("pausing")

    def resume(self, spot: Spot) -> None:
        """Fetch it again."""
        self._lacks("resuming")

    def commit(self, offsets: Mapping[Spot, tuple[int, str]] | None = None) -> None:
        """Commit the offsets read, or these, and wait for the response."""
        self._lacks("commits")

    def committed(self, spot: Spot) -> int | None:
        """Return the group's committed offset, or None."""
        self._lacks("committed offsets")

    def beginning(self, spot: Spot) -> int:
        """Return the first offset of a partition."""
        self._lacks("beginning offsets")

    def end(self, spot: Spot) -> int:
        """Return the end offset of a partition."""
        self._lacks("end offsets")

    def offset_for_time(self, spot: Spot, timestamp: int) -> int | None:
        """Return the first offset with this timestamp or a later one."""
        self._lacks("offsets by time")

    def close(self) -> None:
        """Leave the group and close the connections."""
        self._lacks("closing")

    def _lacks(self, feature: str) -> NoReturn:
        raise NotOffered(f"the consumer does not offer {feature}")


class ClientDriver:
    """One client library connected to one broker, for the length of one scenario.

    ``patience`` is the time limit of a single call, in seconds.
    """

    name = ""

    def __init__(self, bootstrap: str, patience: float) -> None:
        self.bootstrap = bootstrap
        self.patience = patience

    def close(self) -> None:
        """Close everything that was opened."""

    def produce(self, topic: str, messages: Sequence[Message], **options: Any) -> list[Delivered | Refused]:
        """Send in this order through one producer, and wait for every response; return the outcome of each,
        in order.
        """
        self._lacks("producing")

    def consumer(self, group: str | None = None, **options: Any) -> ConsumerDriver:
        """Return a consumer that `close` closes."""
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
        """Create topics; return error codes by name, 0 for success."""
        self._lacks("creating topics")

    def delete_topics(self, names: Sequence[str]) -> dict[str, int]:
        """Delete topics; return error codes by name, 0 for success."""
        self._lacks("deleting topics")

    def create_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        """Grow a topic to so many partitions."""
        self._lacks("creating partitions")

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        self._lacks("listing topics")

    def describe_topic(self, name: str) -> Topic:
        """Describe one topic."""
        self._lacks("describing topics")

    def describe_topic_by_id(self, topic_id: str) -> Topic:
        """Describe one topic, by its id."""
        self._lacks("describing topics by id")

    def delete_topic_by_id(self, topic_id: str) -> None:
        """Delete one topic by its id; raises `Refused`."""
        self._lacks("deleting topics by id")

    def describe_cluster(self) -> Cluster:
        """Describe the cluster."""
        self._lacks("describing the cluster")

    def describe_configs(self, kind: str, name: str) -> dict[str, Config]:
        """Return the configuration of a "topic" or "broker"."""
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
        """Delete the records before the offsets (-1: all); return the new first offsets."""
        self._lacks("deleting records")

    def list_offsets(self, topic: str, specs: Mapping[int, str | int]) -> dict[int, tuple[int, int]]:
        """Return offset and timestamp for "earliest", "latest", "max_timestamp", or a timestamp; -1 for none."""
        self._lacks("listing offsets")

    def groups(self, states: Iterable[str] | None = None, types: Iterable[str] | None = None) -> set[str]:
        """Return the ids of all groups, or of those in certain states and of certain types."""
        self._lacks("listing groups")

    def describe_group(self, group: str) -> Group:
        """Describe one group."""
        self._lacks("describing groups")

    def group_offsets(self, group: str, *, require_stable: bool = False) -> dict[Spot, tuple[int, str]]:
        """Return a group's committed offsets with their metadata.

        With ``require_stable``, offsets that an open transaction may change are refused, or left out.
        """
        self._lacks("listing a group's offsets")

    def alter_group_offsets(self, group: str, offsets: Mapping[Spot, int]) -> None:
        """Commit offsets of an empty group."""
        self._lacks("altering a group's offsets")

    def delete_group_offsets(self, group: str, spots: Sequence[Spot]) -> None:
        """Delete committed offsets of a group."""
        self._lacks("deleting a group's offsets")

    def delete_group(self, group: str) -> None:
        """Delete an empty group."""
        self._lacks("deleting groups")

    def remove_static_member(self, group: str, instance: str) -> None:
        """Remove a static member from its group."""
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

    def _lacks(self, feature: str) -> NoReturn:
        raise NotOffered(f"{self.name} does not offer {feature}")
