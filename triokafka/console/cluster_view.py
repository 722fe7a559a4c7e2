"""The cluster as the page shows it, in JSON. Answers of brokers are reused for a second."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, Literal

from triokafka.client.admin import AdminClient
from triokafka.client.admin.group_types import GroupDescription, GroupListing
from triokafka.client.admin.types import ClusterDescription, ConfigResource, TopicDescription, TopicListing
from triokafka.console.answer_cache import AnswerCache
from triokafka.console.as_json import as_json
from triokafka.console.cluster_metrics import ClusterMetrics
from triokafka.console.group_history import GroupHistory
from triokafka.console.limits import ConsoleLimits
from triokafka.errors import BrokerNotAvailableError, KafkaError, UnsupportedVersionError
from triokafka.structs import TopicPartition
from triokafka.world import World

PAGE: Final = 100
_DESCRIBED: Final = 500


class ClusterView:
    """Reads one cluster with one admin client, inside its ``async with`` block."""

    def __init__(self, options: Mapping[str, Any], world: World, limits: ConsoleLimits) -> None:
        self.options = options
        self.admin = AdminClient(world=world, **{"default_api_timeout_ms": limits.answer_max_ms, **options})
        self.history = GroupHistory(limits.max_samples)
        self.metrics = ClusterMetrics(limits)
        self._limits = limits
        self._world = world
        self._answers = AnswerCache(world.now)

    # ---------------------------------------------------------------- the cluster

    async def _cluster(self) -> ClusterDescription:
        """The brokers, also those that are registered and not in service."""
        ask = partial(self.admin.describe_cluster, include_fenced_brokers=True)
        return await self._answers.get("cluster", ask)

    async def overview(self) -> dict[str, Any]:
        """The cluster at a glance."""
        cluster = await self._cluster()
        topics = await self._topics()
        groups, _ = await self._groups()
        partitions = [partition for topic in topics.values() for partition in topic.partitions]
        return {
            "cluster": as_json(cluster),
            "topics": len(topics),
            "partitions": len(partitions),
            "under_replicated": sum(len(one.isr) < len(one.replicas) for one in partitions),
            "offline": sum(one.leader is None for one in partitions),
            "groups": len(groups),
        }

    async def brokers(self) -> dict[str, Any]:
        """Brokers with their leaders, replicas and data directories; the quorum and the features, if they are known."""
        cluster = await self._cluster()
        dirs = await self._log_dirs()
        counts: dict[int, list[int]] = {node.node_id: [0, 0] for node in cluster.nodes}
        for topic in (await self._topics()).values():
            for partition in topic.partitions:
                if partition.leader is not None and partition.leader.node_id in counts:
                    counts[partition.leader.node_id][0] += 1
                for node_id in partition.replicas:
                    counts.setdefault(node_id, [0, 0])[1] += 1
        rows = [
            {
                **as_json(node),
                "in_service": node.node_id not in cluster.fenced,
                "is_controller": cluster.controller is not None and cluster.controller.node_id == node.node_id,
                "leaders": counts[node.node_id][0],
                "replicas": counts[node.node_id][1],
                "log_dirs": dirs.get(node.node_id, {}),
            }
            for node in cluster.nodes
        ]
        return {
            "brokers": rows,
            "quorum": await self._optional(self.admin.describe_metadata_quorum),
            "features": await self._optional(self.admin.describe_features),
        }

    async def broker_configs(self, node_id: int) -> dict[str, Any]:
        """One broker with its configuration, or the reason why the broker does not return it."""
        cluster = await self._cluster()
        node = next((node for node in cluster.nodes if node.node_id == node_id), None)
        if node is None:
            known = ", ".join(str(each.node_id) for each in cluster.nodes)
            raise BrokerNotAvailableError(f"broker {node_id} is not in the cluster, which has the brokers: {known}")
        in_service = node_id not in cluster.fenced
        is_controller = cluster.controller is not None and cluster.controller.node_id == node_id
        shown = {**as_json(node), "in_service": in_service, "is_controller": is_controller}
        if not in_service:  # no client can reach it
            error = BrokerNotAvailableError(f"broker {node_id} is not in service, so its configuration cannot be read")
            return {"broker": shown, "configs": [], "error": as_json(error)}
        resource = ConfigResource.broker(node_id)
        found = await self.admin.describe_configs([resource], include_documentation=True, include_synonyms=True)
        return {"broker": shown, "configs": as_json(list(found[resource].values())), "error": None}

    async def _optional(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Data that some clusters do not serve, or not to every user: the error is part of the answer."""
        try:
            return as_json(await ask())
        except KafkaError as error:
            return as_json(error)

    # ---------------------------------------------------------------- topics

    async def _topics(self, *, renew: bool = False) -> dict[str, TopicDescription]:
        async def ask() -> dict[str, TopicDescription]:
            names = [one.name for one in await self.names()]
            topics: dict[str, TopicDescription] = {}
            for at in range(0, len(names), _DESCRIBED):  # in parts: decoding a part does not hold up other requests
                part = names[at : at + _DESCRIBED]
                found = await self.admin.describe_topics(part)
                topics |= {name: found[name] for name in part if name not in found.errors}
            return topics

        return await self._answers.get("topics", ask, renew=renew)

    async def names(self) -> list[TopicListing]:
        """The topics by name, without their partitions: a tenth of the work of `_topics`.

        Once they are known, the first list of topics finds them.
        """
        return await self._answers.get("names", partial(self.admin.list_topics, include_internal=True))

    async def _listed(self) -> Iterable[TopicListing | TopicDescription]:
        """The topics by name; those that the samples of metrics have described, as long as they are fresh."""
        described: dict[str, TopicDescription] | None = self._answers.known("topics")
        return await self.names() if described is None else described.values()

    async def topics(self, text: str, page: int, internal: bool, problems: bool) -> dict[str, Any]:
        """A page of topics whose names contain ``text``; with ``problems`` only those with an unhealthy partition.

        Without ``problems`` only the topics of the page are described.
        """

        def is_asked(topic: TopicListing | TopicDescription) -> bool:
            return text in topic.name and (internal or not topic.is_internal)

        if problems:
            known = sorted((await self._topics()).items())
            troubled = [topic for _, topic in known if is_asked(topic) and _is_unhealthy(topic)]
            count = len(troubled)
            page, pages = _page(page, count)
            described = troubled[page * PAGE : (page + 1) * PAGE]
        else:
            names = [topic.name for topic in await self._listed() if is_asked(topic)]
            count = len(names)
            page, pages = _page(page, count)
            names = names[page * PAGE : (page + 1) * PAGE]
            found = await self.admin.describe_topics(names)
            described = [found[name] for name in names if name not in found.errors]
        rows = [
            {
                "name": topic.name,
                "partitions": len(topic.partitions),
                "replication_factor": max((len(one.replicas) for one in topic.partitions), default=0),
                "under_replicated": sum(len(one.isr) < len(one.replicas) for one in topic.partitions),
                "offline": sum(one.leader is None for one in topic.partitions),
                "is_internal": topic.is_internal,
            }
            for topic in described
        ]
        return {"topics": rows, "count": count, "page": page, "pages": pages}

    async def topic(self, name: str) -> dict[str, Any]:
        """A topic: partitions with offsets and sizes, and its configuration."""
        topic = (await self.admin.describe_topics([name]))[name]
        partitions = [TopicPartition(name, one.partition) for one in topic.partitions]
        led = [at for at, one in zip(partitions, topic.partitions, strict=True) if one.leader is not None]
        first = await self._offsets(led, "earliest")
        last = await self._offsets(led, "latest")
        sizes = await self._sizes(name)
        resource = ConfigResource.topic(name)
        configs = await self.admin.describe_configs([resource], include_documentation=True)
        return {
            "name": name,
            "id": as_json(topic.topic_id),
            "is_internal": topic.is_internal,
            "partitions": [
                {
                    **as_json(one),
                    "start": first.get(partition),
                    "end": last.get(partition),
                    "size": sizes.get(partition.partition),
                }
                for partition, one in zip(partitions, topic.partitions, strict=True)
            ],
            "configs": [] if resource in configs.errors else as_json(list(configs[resource].values())),
            "configs_error": as_json(configs.errors.get(resource)),
        }

    async def producers(self, topic: str) -> dict[str, Any]:
        """The producers that the leaders of a topic remember."""
        described = (await self.admin.describe_topics([topic]))[topic]
        partitions = [TopicPartition(topic, one.partition) for one in described.partitions if one.leader is not None]
        found = await self.admin.describe_producers(partitions, timeout_ms=self._limits.partial_max_ms)
        return {"producers": {str(one): as_json(found[one]) for one in partitions if one not in found.errors}}

    async def _all_log_dirs(self, *, renew: bool = False) -> dict[int, Any]:
        async def ask() -> dict[int, Any]:
            try:
                found = await self.admin.describe_log_dirs(timeout_ms=self._limits.partial_max_ms)
            except KafkaError:
                return {}
            return {
                node: {
                    path: {
                        "error": as_json(one.error),
                        "bytes": sum(replica.size for replica in one.replicas.values()),
                        "replicas": {str(partition): replica.size for partition, replica in one.replicas.items()},
                    }
                    for path, one in found[node].items()
                }
                for node in found
                if node not in found.errors
            }

        return await self._answers.get("log_dirs", ask, renew=renew)

    async def _log_dirs(self, *, renew: bool = False) -> dict[int, Any]:
        """Data directories by broker and path, without their single replicas."""
        dirs = await self._all_log_dirs(renew=renew)
        return {node: {path: _without_replicas(one) for path, one in paths.items()} for node, paths in dirs.items()}

    async def _sizes(self, topic: str) -> dict[int, int]:
        """The largest replica of each partition, in bytes."""
        known = await self._all_log_dirs()
        sizes: dict[int, int] = {}
        for paths in known.values():
            for one in paths.values():
                for text, size in one["replicas"].items():
                    name, _, number = text.rpartition("-")
                    if name == topic:
                        sizes[int(number)] = max(sizes.get(int(number), 0), size)
        return sizes

    # ---------------------------------------------------------------- groups

    async def _groups(self) -> tuple[list[GroupListing], list[int]]:
        """All groups by id, and the brokers that did not list theirs."""

        async def ask() -> tuple[list[GroupListing], list[int]]:
            found = await self.admin.list_groups_by_broker(timeout_ms=self._limits.partial_max_ms)
            if found.errors and len(found.errors) == len(found):
                raise next(iter(found.errors.values()))
            told = {one.group_id: one for node in found if node not in found.errors for one in found[node]}
            return [told[group_id] for group_id in sorted(told)], sorted(node.node_id for node in found.errors)

        return await self._answers.get("groups", ask)

    async def _offsets(
        self, partitions: Collection[TopicPartition], which: Literal["earliest", "latest"]
    ) -> dict[TopicPartition, int]:
        """The first or the end offsets of partitions, without those whose leader does not respond."""
        if not partitions:
            return {}
        found = await self.admin.list_offsets(dict.fromkeys(partitions, which), timeout_ms=self._limits.partial_max_ms)
        return {one: found[one].offset for one in partitions if one not in found.errors}

    async def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets of partitions that have a leader."""
        topics = await self._topics()

        def is_led(one: TopicPartition) -> bool:
            known = topics[one.topic].partitions if one.topic in topics else ()
            return one.partition < len(known) and known[one.partition].leader is not None

        return await self._offsets([one for one in partitions if is_led(one)], "latest")

    async def groups(self, text: str, page: int) -> dict[str, Any]:
        """A page of groups whose ids contain ``text``, with their last known lag."""
        all_groups, silent = await self._groups()
        listed = [one for one in all_groups if text in one.group_id]
        page, pages = _page(page, len(listed))
        rows = [
            {**as_json(one), "lag": self.history.last_lag(one.group_id)}
            for one in listed[page * PAGE : (page + 1) * PAGE]
        ]
        return {"groups": rows, "count": len(listed), "page": page, "pages": pages, "silent": silent}

    async def group(self, group_id: str) -> dict[str, Any]:
        """A group: members, positions with lag, and its history."""
        description = (await self.admin.describe_groups([group_id]))[group_id]
        self._note_assignment(description)  # shown members are part of the history, also between two samples
        positions = await self.admin.list_group_offsets(group_id)
        ends = await self._ends(positions)
        owners = {str(one): member.member_id for member in description.members for one in member.assignment}
        rows = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": position.offset,
                "end": ends.get(partition),
                "lag": max(0, ends[partition] - position.offset) if partition in ends else None,
                "member": owners.get(str(partition)),
            }
            for partition, position in sorted(positions.items())
        ]
        return {"group": as_json(description), "positions": rows, **self.history.of(group_id)}

    def _note_assignment(self, group: GroupDescription) -> None:
        members = {member.member_id: sorted(map(str, member.assignment)) for member in group.members}
        self.history.add_assignment(group.group_id, self._world.wall_ms(), group.state, members)

    async def sample_groups(self, seen: Iterable[str]) -> None:
        """Note lag and assignment of groups: those in ``seen`` first, then others, up to a limit."""
        listed = [one.group_id for one in (await self._groups())[0]]
        first = [group for group in seen if group in listed]
        chosen = list(dict.fromkeys([*first, *listed]))[: self._limits.sampled_groups]
        if not chosen:
            return
        longest = self._limits.partial_max_ms
        positions = await self.admin.list_offsets_of_groups(chosen, timeout_ms=longest)
        wanted = {one for group in chosen if group not in positions.errors for one in positions[group]}
        ends = await self._ends(wanted)
        described = await self.admin.describe_groups(chosen, timeout_ms=longest)
        now_ms = self._world.wall_ms()
        lags: dict[str, int] = {}
        for group in chosen:
            if group not in positions.errors:
                lag = sum(max(0, ends[one] - at.offset) for one, at in positions[group].items() if one in ends)
                lags[group] = lag
                self.history.add_lag(group, now_ms, lag)
            if group not in described.errors:
                self._note_assignment(described[group])
        self.metrics.add_lags(now_ms, lags)

    def forget(self) -> None:
        """Ask the cluster again from now on, because it was changed."""
        self._answers.forget()

    async def sample_topics(self, seen: Iterable[str]) -> None:
        """Note rates, sizes and problems of topics for the charts: those in ``seen`` first, up to a limit."""
        topics = await self._topics(renew=True)
        self.metrics.add_partitions(self._world.wall_ms(), topics)
        wanted = self.metrics.to_sample(topics, seen)
        if wanted:
            ends = await self._ends(wanted)
            self.metrics.add_ends(self._world.now(), self._world.wall_ms(), ends)
        dirs = await self._log_dirs(renew=True)
        sizes = {node: sum(one["bytes"] for one in paths.values()) for node, paths in dirs.items()}
        self.metrics.add_sizes(self._world.wall_ms(), sizes)

    # ---------------------------------------------------------------- the rest

    async def transactions(self) -> dict[str, Any]:
        """All transactional ids, by coordinator."""
        found = await self.admin.list_transactions(timeout_ms=self._limits.partial_max_ms)
        rows = [
            {"coordinator": broker, **as_json(one)}
            for broker in found
            if broker not in found.errors
            for one in found[broker]
        ]
        return {"transactions": rows, "errors": [as_json(error) for error in found.errors.values()]}

    async def access(self) -> dict[str, Any]:
        """ACLs, users and quotas, as far as the cluster has them and serves them."""
        return {
            "acls": await self._optional(self.admin.describe_acls),
            "users": await self._optional(self.admin.describe_user_scram_credentials),
            "quotas": await self._optional(self._quotas),
        }

    async def _quotas(self) -> list[dict[str, Any]]:
        try:
            found = await self.admin.describe_client_quotas()
        except UnsupportedVersionError:
            return []
        return [{"entity": as_json(entity), "values": dict(values)} for entity, values in found.items()]


def _page(page: int, count: int) -> tuple[int, int]:
    """Return the page to show, at most the last one, and the number of pages."""
    pages = max(1, -(-count // PAGE))
    return min(page, pages - 1), pages


def _is_unhealthy(topic: TopicDescription) -> bool:
    return any(one.leader is None or len(one.isr) < len(one.replicas) for one in topic.partitions)


def _without_replicas(one: Mapping[str, Any]) -> dict[str, Any]:
    return {"error": one["error"], "bytes": one["bytes"], "replicas": len(one["replicas"])}
