"""Keeps the topics of the target cluster like those of the source: existence, partitions, configurations."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID
from zlib import crc32

from triokafka.client.admin import AdminClient
from triokafka.client.admin.types import ConfigEntry, ConfigResource, NewTopic, TopicDescription
from triokafka.errors import ConfigurationError, KafkaError, UnsupportedVersionError
from triokafka.mirror.cluster_side import ClusterSide
from triokafka.mirror.cycles import are_one_cluster, topics_of_active_flow
from triokafka.mirror.naming import IdentityNaming, is_internal
from triokafka.mirror.options import MirrorOptions
from triokafka.protocol.configuration import ConfigSource
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

_KEEP_TIMESTAMPS: Final = {"message.timestamp.type": "CreateTime"}


class MirroredPartition(NamedTuple):
    """Where a source partition goes. The number of the partition is the same."""

    remote_topic: str
    topic_id: UUID | None
    """Id of the source topic; None if its brokers do not have ids (before 2.8)."""
    remote_id: UUID | None = None
    """Id of the topic in the target, in the same way."""


class TopicReplication:
    """Creates and extends remote topics and copies configurations. A topic that fails is left out and tried again."""

    def __init__(self, options: MirrorOptions, source: ClusterSide, target: ClusterSide, world: World) -> None:
        self._options = options
        self._source = source
        self._target = target
        self._world = world
        self._naming = options.names()
        self._filter = options.topic_filter()
        self._configs_filter = options.config_filter()
        self.failures: dict[str, str] = {}
        """The topics that the last refresh left out, with the reason."""
        self.remote: dict[str, str] = {}
        """Topics of the target by name of the source's topic, as of the last refresh."""
        self._logged: dict[str, str] = {}
        self._may_be_one_cluster = True

    async def refresh(self) -> dict[TopicPartition, MirroredPartition]:
        """Bring the target up to date, and return the partitions that this shard mirrors.

        Raises:
            ConfigurationError, KafkaError: as for `wanted_topics`.
        """
        self.failures = {}
        wanted = await self.wanted_topics()
        if isinstance(self._naming, IdentityNaming):
            wanted = await self._without_cycles(wanted)
        described = await self._source.admin.describe_topics(wanted)
        sources = {name: described[name] for name in wanted if name not in described.errors}
        self._report(described.errors)
        usable = await self._replicate(sources)
        self._logged = dict(self.failures)
        self.remote = usable
        ids = await self._ids(usable.values())
        return {
            TopicPartition(name, number): MirroredPartition(remote, sources[name].topic_id or None, ids.get(remote))
            for name, remote in sorted(usable.items())
            for number in range(len(sources[name].partitions))
            if crc32(f"{name}-{number}".encode()) % self._options.shards == self._options.shard
        }

    async def wanted_topics(self) -> list[str]:
        """Return the topics of the source that the options select.

        Raises:
            ConfigurationError: source and target are one cluster, and a copy would be copied again without end.
            KafkaError: one of the clusters did not answer, or refused to list its topics.
        """
        one_cluster = self._may_be_one_cluster and await are_one_cluster(self._source, self._target)
        wanted = [topic.name for topic in await self._source.admin.list_topics() if self._is_wanted(topic.name)]
        endless = next((name for name in wanted if self._is_wanted(self._remote(name))), None)
        if endless is not None:
            if one_cluster:
                copy = self._remote(endless)
                what = "itself" if copy == endless else f"{copy}, and that again, without end"
                raise ConfigurationError(
                    f"source and target are the same cluster: topic {endless} would be copied to {what}."
                    " Name another cluster, or choose topics that leave out the copies"
                )
            self._may_be_one_cluster = False
        return wanted

    def _is_wanted(self, name: str) -> bool:
        return (
            self._filter.accepts(name)
            and not is_internal(name)
            and not self._naming.is_cycle(name, self._options.target_alias)
        )

    def _remote(self, name: str) -> str:
        return self._naming.remote_topic(self._options.source_alias, name)

    async def _without_cycles(self, names: list[str]) -> list[str]:
        """Leave out topics that a running flow in the other direction writes to this source."""
        theirs = await topics_of_active_flow(self._source, self._target, self._world.wall_ms())
        for name in theirs.intersection(names):
            self._complain(name, "a running mirror copies it in the other direction; with the same name it would loop")
        return [name for name in names if name not in theirs]

    async def _replicate(self, sources: Mapping[str, TopicDescription]) -> dict[str, str]:
        """Return the remote topics that exist with enough partitions, by name of the source topic."""
        remote = {name: self._remote(name) for name in sources}
        configs = await self._configs(self._source.admin, sources)
        present = {topic.name for topic in await self._target.admin.list_topics(include_internal=True)}
        new = [name for name in sources if remote[name] not in present]
        await self._each(new, lambda name: self._create(sources[name], remote[name], configs.get(name, {})))
        old = [name for name in sources if remote[name] in present]
        described = await self._target.admin.describe_topics([remote[name] for name in old])
        has = {name: described[remote[name]] for name in old if remote[name] not in described.errors}
        self._report({name: described.errors[remote[name]] for name in old if name not in has})
        grown = [name for name in has if len(has[name].partitions) < len(sources[name].partitions)]
        await self._each(
            grown, lambda name: self._target.admin.create_partitions({remote[name]: len(sources[name].partitions)})
        )
        if self._options.sync_topic_configs and has:
            await self._sync_configs({name: remote[name] for name in has}, configs)
        return {name: remote[name] for name in [*new, *has] if name not in self.failures}

    async def _ids(self, topics: Collection[str]) -> dict[str, UUID | None]:
        """Return the ids of topics of the target; those that its brokers do not know yet are missing."""
        described = await self._target.admin.describe_topics(list(topics))
        return {name: described[name].topic_id or None for name in topics if name not in described.errors}

    async def _create(self, source: TopicDescription, remote: str, configs: Mapping[str, str]) -> None:
        await self._target.admin.create_topics(
            [
                NewTopic(
                    remote,
                    len(source.partitions),
                    self._options.replication_factor,
                    {**(configs if self._options.sync_topic_configs else {}), **_KEEP_TIMESTAMPS},
                )
            ]
        )
        logger.info("created topic %s with %d partitions", remote, len(source.partitions))

    async def _configs(self, admin: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the configurations that were set for topics themselves, without the excluded ones."""
        resources = [ConfigResource.topic(name) for name in topics]
        if not resources or not self._options.sync_topic_configs:
            return {}
        found = await admin.describe_configs(resources)
        self._report({resource.name: error for resource, error in found.errors.items()})
        return {
            resource.name: {
                entry.name: entry.value
                for entry in found[resource].values()
                if entry.value is not None and self._is_copied(entry)
            }
            for resource in resources
            if resource not in found.errors
        }

    def _is_copied(self, entry: ConfigEntry) -> bool:
        return entry.source is ConfigSource.TOPIC and self._configs_filter.accepts(entry.name)

    async def _sync_configs(self, remote: Mapping[str, str], wanted: Mapping[str, Mapping[str, str]]) -> None:
        present = await self._configs(self._target.admin, remote.values())
        changes: dict[str, dict[str, str | None]] = {}
        for name, topic in remote.items():
            if name in wanted and topic in present:
                change: dict[str, str | None] = {
                    key: value for key, value in wanted[name].items() if present[topic].get(key) != value
                }
                change |= dict.fromkeys(present[topic].keys() - wanted[name].keys())
                if change:
                    changes[name] = change

        async def apply(name: str) -> None:
            resource = ConfigResource.topic(remote[name])
            try:
                await self._target.admin.incremental_alter_configs({resource: changes[name]})
            except UnsupportedVersionError:  # brokers before 2.3 replace all values
                await self._target.admin.alter_configs({resource: dict(wanted[name])})
            logger.info("topic %s: configuration now has %s", remote[name], changes[name])

        await self._each(list(changes), apply)

    async def _each(self, names: Iterable[str], change: Any) -> None:
        """Change topics one by one: one that is refused does not hold up the others."""
        for name in names:
            try:
                await change(name)
            except KafkaError as error:
                if error.retriable:
                    raise
                self._complain(name, str(error))

    def _report(self, errors: Mapping[str, Exception]) -> None:
        for name, error in errors.items():
            self._complain(name, str(error))

    def _complain(self, name: str, reason: str) -> None:
        """Leave a topic out. Log the reason once, until it changes."""
        self.failures[name] = reason
        if self._logged.get(name) != reason:
            logger.warning("topic %s is not mirrored: %s", name, reason)
