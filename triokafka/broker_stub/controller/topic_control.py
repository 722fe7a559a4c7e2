"""Topics and partitions: creating, growing and deleting them.

`TopicControl` is pure: from an image, it computes the records and the response of a request. Every item of a
request succeeds or fails independently.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from triokafka import errors, topic_names
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import placement
from triokafka.broker_stub.controller.configuration_control import ConfigurationControl
from triokafka.broker_stub.controller.manual_placement import check_manual, manual_assignments
from triokafka.broker_stub.controller.outcome import MAX_RECORDS_PER_OPERATION, Outcome, Steps, check_size
from triokafka.broker_stub.controller.policies import Policies, TopicCreation
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.described_configs import ConfigEntry, inherited_entries, topic_entries
from triokafka.broker_stub.metadata.image import MetadataImage, TopicImage
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.broker_stub.metadata.mutation_charge import MutationCharge, no_charge
from triokafka.broker_stub.work_budget import BUDGET, BYTES_PER_ITEM
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from triokafka.protocol.api.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
        CreatePartitionsTopicResult,
    )
    from triokafka.protocol.api.create_topics import (
        CreatableTopic,
        CreatableTopicResult,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )
    from triokafka.protocol.api.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

_NO_ID: Final = uuid.UUID(int=0)
_DEFAULT: Final = -1
_NAMES_AT_ONCE: Final = 2_000
"""Topics of a request that are counted before other tasks run."""


_TopicEntries = Callable[[Mapping[str, str]], list[ConfigEntry]]


def _topic_entries(config: BrokerConfig, image: MetadataImage) -> _TopicEntries:
    """Return a function from a topic's overrides to its configuration; all topics share the entries they inherit."""
    inherited: dict[str, ConfigEntry] = {}

    def entries(overrides: Mapping[str, str]) -> list[ConfigEntry]:
        if not inherited:
            inherited.update(inherited_entries(config, image))
        return topic_entries(inherited, overrides)

    return entries


class TopicControl:
    """Decides about topics and partitions.

    Args:
        config: has the defaults of new topics and ``delete.topic.enable``.
        configuration: validates and describes topic configuration.
        policies: checked before a topic is created; by default, the policies that ``config`` names.
        pick: chooses a number below its argument, at which placement starts.
        new_id: creates topic ids.
    """

    def __init__(
        self,
        config: BrokerConfig,
        configuration: ConfigurationControl,
        policies: Policies | None = None,
        *,
        pick: Callable[[int], int],
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        self._config = config
        self._configuration = configuration
        self._policies = Policies(config) if policies is None else policies
        self._pick = pick
        self._new_id = new_id

    # CreateTopics

    def create_topics(
        self,
        image: MetadataImage,
        request: CreateTopicsRequest,
        *,
        hidden_configs: frozenset[str] = frozenset(),
        charge: MutationCharge = no_charge,
    ) -> Steps[CreateTopicsResponse]:
        """Create topics; with ``validate_only``, return the same response without creating them.

        The response omits the configuration of topics in ``hidden_configs``, which the client may not read. ``charge``
        first receives the number of partitions of each topic, and may raise to reject the topic.

        Raises:
            PolicyViolationError: the request asks for too many partitions, or needs too many records.
        """
        from triokafka.protocol.api.create_topics import CreatableTopicResult, CreateTopicsResponse

        names = yield from self._count_names(request)
        records: list[Struct] = []
        results: list[CreatableTopicResult] = []
        claimed: dict[str, str] = {}
        shown = _topic_entries(self._config, image)
        for topic in request.topics:
            yield 1
            try:
                if names[topic.name] > 1:
                    raise errors.InvalidRequestError("Duplicate topic name.")
                self._check_name(image, topic.name, claimed)
                made, result = yield from self._create_topic(
                    image, topic, None if topic.name in hidden_configs else shown, len(request.topics)
                )
                charge(sum(isinstance(record, PartitionRecord) for record in made))
            except errors.BrokerResponseError as error:
                failure = ItemError.of(error)
                results.append(
                    CreatableTopicResult(
                        name=topic.name, error_code=failure.code, error_message=failure.message, configs=[]
                    )
                )
                continue
            check_size(records, len(made))
            if topic_names.has_collision_characters(topic.name):
                claimed[topic_names.collision_key(topic.name)] = topic.name
            records += made
            results.append(result)
        return Outcome([] if request.validate_only else records, CreateTopicsResponse(topics=results))

    def _count_names(self, request: CreateTopicsRequest) -> Generator[int, None, Counter[str]]:
        """Count how often the request names each topic; reject a request for too many partitions before other work.

        The controller counts invalid and existing topics too, as in Kafka. Raises `PolicyViolationError`.
        """
        names = Counter[str]()
        partitions = 0
        for number, topic in enumerate(request.topics, 1):
            names[topic.name] += 1
            if topic.assignments:
                partitions += len(topic.assignments)
            elif topic.num_partitions == _DEFAULT:
                partitions += self._config.num_partitions
            else:
                partitions += max(topic.num_partitions, 0)
            if partitions > MAX_RECORDS_PER_OPERATION:
                raise errors.PolicyViolationError("Excessively large number of partitions per request.")
            if number % _NAMES_AT_ONCE == 0:
                yield BUDGET
        return names

    def _check_name(self, image: MetadataImage, name: str, claimed: Mapping[str, str]) -> None:
        topic_names.validate(name)
        if name == topic_names.CLUSTER_METADATA_TOPIC:
            raise errors.InvalidRequestError(f"Creation of internal topic {name} is prohibited.")
        if name in image.topics:
            raise errors.TopicAlreadyExistsError(f"Topic '{name}' already exists.")
        if topic_names.has_collision_characters(name):
            key = topic_names.collision_key(name)
            other = claimed.get(key) or next(iter(image.colliding_names.get(key, ())), None)
            if other is not None:
                raise errors.InvalidTopicError(
                    f"Topic '{name}' collides with existing topic '{other}': metrics show both as '{key}'"
                )

    def _create_topic(
        self, image: MetadataImage, topic: CreatableTopic, shown: _TopicEntries | None, among: int
    ) -> Generator[int, None, tuple[list[Struct], CreatableTopicResult]]:
        """Return the records and the result of one topic; ``shown`` returns its configuration entries, None hides
        them.
        """
        from triokafka.protocol.api.create_topics import CreatableTopicConfigs, CreatableTopicResult

        check_size([], len(topic.configs) + len(topic.assignments))
        missing = [config.name for config in topic.configs if config.value is None]
        if missing:
            raise errors.InvalidConfigurationError(f"Null value not supported for topic configs: {','.join(missing)}")
        configs = {config.name: config.value or "" for config in topic.configs}
        if len(configs) < len(topic.configs):
            raise errors.InvalidRequestError("Error due to duplicate config keys")
        self._configuration.validate_topic(configs, among=among)
        yield len(configs) + sum(map(len, configs.values())) // BYTES_PER_ITEM
        if topic.assignments:
            assignments = manual_assignments(image, topic)
        else:
            assignments = self._automatic_assignments(image, topic)
        self._policies.check_topic(
            TopicCreation(topic.name, None, None, dict(enumerate(assignments)), configs)
            if topic.assignments
            else TopicCreation(topic.name, len(assignments), len(assignments[0]), None, configs)
        )
        topic_id = self._new_id()
        records: list[Struct] = [TopicRecord(name=topic.name, topic_id=topic_id)]
        # Configuration comes before the partitions, so that a log is never opened with the wrong one.
        records += [
            ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
            for name, value in configs.items()
        ]
        for number, replicas in enumerate(assignments):
            records.append(_partition_record(image, topic_id, number, replicas))
            yield 1
        result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_message=None, configs=[])
        if shown is None:
            result.topic_config_error_code = errors.TopicAuthorizationFailedError.code
        else:
            result.num_partitions = len(assignments)
            result.replication_factor = len(assignments[0])
            result.configs = [
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in shown(configs)
            ]
        return records, result

    def _automatic_assignments(self, image: MetadataImage, topic: CreatableTopic) -> Sequence[tuple[int, ...]]:
        if topic.replication_factor < _DEFAULT or topic.replication_factor == 0:
            raise errors.InvalidReplicationFactorError(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if topic.num_partitions < _DEFAULT or topic.num_partitions == 0:
            raise errors.InvalidPartitionsError(
                "Number of partitions must be larger than 0, or -1 to use the default value."
            )
        partitions = self._config.num_partitions if topic.num_partitions == _DEFAULT else topic.num_partitions
        check_size([], partitions)
        factor = topic.replication_factor
        if factor == _DEFAULT:
            factor = self._config.default_replication_factor
        return self._place(image, partitions, factor)

    def _place(self, image: MetadataImage, partitions: int, factor: int, **grow: int) -> Sequence[tuple[int, ...]]:
        usable = [
            placement.UsableBroker(broker.broker_id, broker.rack, fenced=broker.fenced)
            for broker in image.brokers.values()
            if broker.placeable
        ]
        try:
            return placement.place(usable, partitions, factor, pick=self._pick, **grow)
        except errors.InvalidReplicationFactorError as error:
            raise errors.InvalidReplicationFactorError(
                f"Unable to replicate the partition {factor} time(s): {error}"
            ) from None

    # CreatePartitions

    def create_partitions(
        self, image: MetadataImage, request: CreatePartitionsRequest, *, charge: MutationCharge = no_charge
    ) -> Steps[CreatePartitionsResponse]:
        """Add partitions to topics; ``count`` is the new total. Existing partitions do not change."""
        from triokafka.protocol.api.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult

        names = Counter(topic.name for topic in request.topics)
        records: list[Struct] = []
        results: list[CreatePartitionsTopicResult] = []
        for topic in request.topics:
            failure = ItemError()
            yield 1
            try:
                if names[topic.name] > 1:
                    raise errors.InvalidRequestError("Duplicate topic name.")
                made = yield from self._grow(image, topic)
                check_size(records, len(made))
                charge(len(made))
                records += made
            except errors.BrokerResponseError as error:
                failure = ItemError.of(error)
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=failure.code, error_message=failure.message)
            )
        return Outcome([] if request.validate_only else records, CreatePartitionsResponse(results=results))

    def _grow(self, image: MetadataImage, wanted: CreatePartitionsTopic) -> Generator[int, None, list[Struct]]:
        topic = image.topics.get(wanted.name)
        if topic is None:
            raise errors.UnknownTopicOrPartitionError(f"Topic '{wanted.name}' does not exist.")
        current = len(topic.partitions)
        if wanted.count == current:
            raise errors.InvalidPartitionsError(f"Topic already has {current} partition(s).")
        if wanted.count < current:
            raise errors.InvalidPartitionsError(
                f"The topic {wanted.name} currently has {current} partition(s); "
                f"{wanted.count} would not be an increase."
            )
        additional = wanted.count - current
        check_size([], additional)
        first = topic.partitions[min(topic.partitions)]
        factor = len(first.replicas)
        if wanted.assignments is None:
            added = self._place(image, additional, factor, first_partition=current, first_replica=first.replicas[0])
        else:
            if len(wanted.assignments) != additional:
                raise errors.InvalidReplicationAssignmentError(
                    f"Attempted to add {additional} additional partition(s), "
                    f"but only {len(wanted.assignments)} assignment(s) were specified."
                )
            for index, assignment in enumerate(wanted.assignments):
                check_manual(image, current + index, assignment.broker_ids, factor)
            added = [tuple(assignment.broker_ids) for assignment in wanted.assignments]
        made: list[Struct] = []
        for number, replicas in enumerate(added, current):
            made.append(_partition_record(image, topic.topic_id, number, replicas))
            yield 1
        return made

    # DeleteTopics

    def delete_topics(
        self,
        image: MetadataImage,
        request: DeleteTopicsRequest,
        *,
        version: int = 6,
        charge: MutationCharge = no_charge,
    ) -> Steps[DeleteTopicsResponse]:
        """Delete topics by name or id. Brokers delete their replicas when they apply the change.

        Raises:
            TopicDeletionDisabledError: ``delete.topic.enable`` is false (before ``version`` 3, `InvalidRequestError`).
            PolicyViolationError: the request needs too many records.
        """
        from triokafka.protocol.api.delete_topics import DeletableTopicResult, DeleteTopicsResponse

        if not self._config.delete_topic_enable:
            disabled = errors.TopicDeletionDisabledError if version >= 3 else errors.InvalidRequestError
            raise disabled("Topic deletion is disabled.")
        asked: list[tuple[str | None, uuid.UUID]] = [(name, _NO_ID) for name in request.topic_names]
        asked += [(topic.name, topic.topic_id) for topic in request.topics]
        found: list[TopicImage | None] = []
        times, times_asked = Counter[uuid.UUID](), Counter[tuple[str | None, uuid.UUID]]()
        for one in asked:
            topic = _find(image, *one)
            found.append(topic)
            times_asked[one] += 1
            if topic is not None:
                times[topic.topic_id] += 1
            yield 1
        check_size([], len(times))
        records: list[Struct] = []
        results: list[DeletableTopicResult] = []
        for (name, topic_id), topic in zip(asked, found, strict=True):
            failure = ItemError()
            try:
                _check_deletable(name, topic_id, topic, times_asked[name, topic_id], times)
                assert topic is not None
                charge(len(topic.partitions))
                name, topic_id = topic.name, topic.topic_id
                records.append(RemoveTopicRecord(topic_id=topic_id))
            except errors.BrokerResponseError as error:
                failure = ItemError.of(error)
            results.append(
                DeletableTopicResult(
                    name=name, topic_id=topic_id, error_code=failure.code, error_message=failure.message
                )
            )
            yield 1
        return Outcome(records, DeleteTopicsResponse(responses=results))


def _find(image: MetadataImage, name: str | None, topic_id: uuid.UUID) -> TopicImage | None:
    if name is not None:
        return image.topics.get(name) if topic_id == _NO_ID else None
    return image.topics_by_id.get(topic_id)


def _check_deletable(
    name: str | None,
    topic_id: uuid.UUID,
    topic: TopicImage | None,
    times_asked: int,
    times_found: Mapping[uuid.UUID, int],
) -> None:
    if name is None and topic_id == _NO_ID:
        raise errors.InvalidRequestError("Neither topic name nor id were specified.")
    if name is not None and topic_id != _NO_ID:
        raise errors.InvalidRequestError("You may not specify both topic name and topic id.")
    if times_asked > 1:
        raise errors.InvalidRequestError("Duplicate topic name." if name is not None else "Duplicate topic id.")
    if topic is None:
        if name is None:
            raise errors.UnknownTopicIdError("This server does not host this topic ID.")
        raise errors.UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    if times_found[topic.topic_id] > 1:
        raise errors.InvalidRequestError("The provided topic name maps to an ID that was already supplied.")


def _partition_record(
    image: MetadataImage, topic_id: uuid.UUID, number: int, replicas: Sequence[int]
) -> PartitionRecord:
    """Return a new partition: every replica whose broker is up is in sync, and the first of them leads."""
    isr = [broker_id for broker_id in replicas if image.brokers[broker_id].active]
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        removing_replicas=[],
        adding_replicas=[],
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=(
            [image.brokers[broker_id].default_directory() for broker_id in replicas]
            if features.assigns_directories(image)
            else []
        ),
    )
