"""Changes of the dynamic configuration of topics, brokers, groups and client metrics.

`ConfigurationControl` is pure. Topic configuration goes through the definitions beside the log, broker configuration
through the broker's own. Every resource of a request succeeds or fails on its own, as a whole.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from triokafka import errors, topic_names
from triokafka.broker_stub.config import DEFINITIONS, BrokerConfig, UpdateMode
from triokafka.broker_stub.config.broker_config import ALIASES, is_hidden, is_listener_limit
from triokafka.broker_stub.config.definition import ConfigDefinition
from triokafka.broker_stub.config.known_names import PER_BROKER_NAMES, UNUSED_DYNAMIC_NAMES, UNUSED_NAMES
from triokafka.broker_stub.config.security_names import is_dynamic_store, needs_listener
from triokafka.broker_stub.controller.outcome import Outcome, Steps, check_size
from triokafka.broker_stub.controller.policies import ConfigChange, Policies
from triokafka.broker_stub.log import config as log_config
from triokafka.broker_stub.log.config import ConfigType, LogConfig
from triokafka.broker_stub.log.config_definition import parse_int
from triokafka.broker_stub.metadata import features, group_and_metrics_configs
from triokafka.broker_stub.metadata.config_resource_checks import check_broker_name, check_repeats, not_configurable
from triokafka.broker_stub.metadata.effective_configuration import EffectiveConfiguration, is_broker_option
from triokafka.broker_stub.metadata.image import MetadataImage, TopicImage
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.broker_stub.work_budget import BUDGET, BYTES_PER_ITEM
from triokafka.protocol.configuration import ConfigOperation, ConfigResourceType
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import ConfigRecord, PartitionChangeRecord
from triokafka.security.secret import HIDDEN

if TYPE_CHECKING:
    from triokafka.protocol.api.alter_configs import (
        AlterConfigsRequest,
        AlterConfigsResource,
        AlterConfigsResourceResponse,
        AlterConfigsResponse,
    )
    from triokafka.protocol.api.incremental_alter_configs import (
        AlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from triokafka.protocol.api.incremental_alter_configs import (
        AlterConfigsResource as IncrementalResource,
    )

logger = logging.getLogger(__name__)

_CORDONED: Final = "cordoned.log.dirs"
_THROTTLES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Broker configuration that Kafka's tools set around a reassignment; it exists only dynamically."""


_POOLS: Final = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
"""Sizes of thread pools among the broker configurations."""


_SUGGESTIONS: Final = 100
"""The most items of a request whose errors suggest known keys for unknown ones."""
_BROKER_WORK: Final = BUDGET // 5
"""The work of validating a broker's configuration, as items of a `WorkBudget`."""


class _Resource(Protocol):
    resource_type: int
    resource_name: str


R = TypeVar("R", "AlterConfigsResource", "IncrementalResource")


class ConfigurationControl:
    """Decides about changes of configuration. ``effective`` reads the configuration that applies.

    Args:
        config: the broker's configuration at its start.
        policies: checked before a configuration changes; by default, the policies that ``config`` names.
    """

    def __init__(self, config: BrokerConfig, policies: Policies | None = None) -> None:
        self.config = config
        self.policies = Policies(config) if policies is None else policies
        self.effective = EffectiveConfiguration(config)

    # Validating

    def validate_topic(self, configs: Mapping[str, str], *, among: int = 1) -> None:
        """Check a topic's whole configuration. Raises `InvalidConfigurationError`.

        ``among`` is the number of items of the request. In a large one, errors about unknown keys suggest no others.
        """
        LogConfig.from_properties(configs, base=self.config.topic_defaults, suggests=among <= _SUGGESTIONS)

    def _validate(self, image: MetadataImage, resource: _Resource, configs: Mapping[str, str], among: int) -> None:
        name = resource.resource_name
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                if not name:
                    raise errors.InvalidRequestError("Default topic resources are not allowed.")
                topic_names.validate(name)
                self.validate_topic(configs, among=among)
                if name not in image.topics:
                    raise errors.UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
            case ConfigResourceType.BROKER:
                self._validate_broker(image, configs, cluster_wide=not name)
            case ConfigResourceType.GROUP | ConfigResourceType.CLIENT_METRICS as kind:
                if not name and kind == ConfigResourceType.GROUP:
                    raise errors.InvalidRequestError("Default group resources are not allowed.")
                if not name:
                    raise errors.InvalidRequestError("Subscription name can't be empty")
                group_and_metrics_configs.validate(kind, configs, _group_bounds(self.config))
            case other:
                raise not_configurable(other)

    def _validate_broker(self, image: MetadataImage, configs: Mapping[str, str], *, cluster_wide: bool) -> None:
        read_only = sorted(filter(_is_read_only, configs))
        if read_only:
            raise errors.InvalidRequestError(f"Cannot update these configs dynamically: [{', '.join(read_only)}]")
        bare = sorted(filter(needs_listener, configs))
        if bare:
            raise errors.InvalidRequestError(
                "These security configs can be dynamically updated only per-listener using the listener prefix:"
                f" [{', '.join(bare)}]"
            )
        of_one = sorted(filter(_is_per_broker, configs))
        if of_one and cluster_wide:
            raise errors.InvalidRequestError(
                "Cannot update these configs at default cluster level, broker id must be specified:"
                f" [{', '.join(of_one)}]"
            )
        if _CORDONED in configs and not features.cordons_directories(image):
            raise errors.InvalidConfigurationError(
                f"The {_CORDONED} configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
            )
        for name in sorted(_THROTTLES & set(configs)):
            _check_rate(name, configs[name])
        for name in filter(_limits_connections, configs):
            if configs[name].strip() == "0":
                raise errors.InvalidRequestError(f"Invalid {name} 0")
        try:
            # Another broker has other directories than this controller.
            known = {
                name: text
                for name, text in configs.items()
                if is_broker_option(name) and name != _CORDONED and not is_dynamic_store(name)
            }
            self.config.with_properties(known)
        except errors.ConfigurationError as error:
            raise errors.InvalidRequestError(str(error)) from None
        _check_pools(self.effective.broker_config(image), configs)

    # Changing

    def alter_configs(
        self,
        image: MetadataImage,
        request: AlterConfigsRequest,
        *,
        denied: Mapping[tuple[int, str], ItemError] | None = None,
    ) -> Steps[AlterConfigsResponse]:
        """Replace the whole configuration of resources: keys that the request leaves out are deleted.

        ``denied`` has the resources that the client may not change, with the errors to return.

        Raises:
            PolicyViolationError: the request needs too many records.
        """
        from triokafka.protocol.api.alter_configs import AlterConfigsResponse

        def change(resource: AlterConfigsResource) -> Iterable[Struct]:
            missing = [config.name for config in resource.configs if config.value is None]
            if missing:
                raise errors.InvalidRequestError(f"Null value not supported for : {', '.join(missing)}")
            wanted = {config.name: config.value or "" for config in resource.configs}
            self._validate(image, resource, wanted, len(request.resources))
            _check_min_insync_replicas(image, resource, wanted, touched=())
            self.policies.check_configs(ConfigChange(resource.resource_type, resource.resource_name, wanted))
            return _changes(image, resource, wanted)

        records, responses = yield from self._each(request.resources, denied, change)
        return Outcome([] if request.validate_only else records, AlterConfigsResponse(responses=responses))

    def incremental_alter_configs(
        self,
        image: MetadataImage,
        request: IncrementalAlterConfigsRequest,
        *,
        denied: Mapping[tuple[int, str], ItemError] | None = None,
    ) -> Steps[IncrementalAlterConfigsResponse]:
        """Set, delete, append to or subtract from single keys of resources; ``denied`` and errors as in
        `alter_configs`."""
        from triokafka.protocol.api.incremental_alter_configs import IncrementalAlterConfigsResponse

        def change(resource: IncrementalResource) -> Iterable[Struct]:
            key = (resource.resource_type, resource.resource_name)
            wanted = dict(image.configs.get(key, {}))
            touched = [config.name for config in resource.configs]
            _apply_operations(resource.resource_type, wanted, resource.configs)
            self._validate(image, resource, wanted, len(request.resources))
            _check_min_insync_replicas(image, resource, wanted, touched)
            set_now = {name: wanted[name] for name in touched if name in wanted}
            self.policies.check_configs(ConfigChange(*key, set_now))
            return _changes(image, resource, wanted, touched)

        records, responses = yield from self._each(request.resources, denied, change)
        return Outcome([] if request.validate_only else records, IncrementalAlterConfigsResponse(responses=responses))

    def _each(
        self,
        resources: Sequence[R],
        denied: Mapping[tuple[int, str], ItemError] | None,
        change: Callable[[R], Iterable[Struct]],
    ) -> Generator[int, None, tuple[list[Struct], list[AlterConfigsResourceResponse]]]:
        """Return the records of ``change`` for the resources, and a response for each. A failure has no records."""
        from triokafka.protocol.api.alter_configs import AlterConfigsResourceResponse

        records: list[Struct] = []
        responses: list[AlterConfigsResourceResponse] = []
        times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
        for resource in resources:
            key = (resource.resource_type, resource.resource_name)
            failure = (denied or {}).get(key) or ItemError()
            try:
                if not failure:
                    self._check_resource(resource, times[key], [config.name for config in resource.configs])
                    records += change(resource)
            except errors.BrokerResponseError as error:
                failure = ItemError.of(error)
            responses.append(
                AlterConfigsResourceResponse(
                    error_code=failure.code,
                    error_message=failure.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
            check_size(records)
            yield _work(resource)
        return records, responses

    def _check_resource(self, resource: _Resource, times: int, names: Sequence[str]) -> None:
        check_repeats(times, names)
        if resource.resource_type == ConfigResourceType.BROKER and resource.resource_name:
            check_broker_name(resource.resource_name)


def _work(resource: AlterConfigsResource | IncrementalResource) -> int:
    """Return the work of validating a resource, as items of a `WorkBudget`: a long value takes milliseconds."""
    size = sum(len(config.value or "") for config in resource.configs)
    of_broker = resource.resource_type == ConfigResourceType.BROKER
    return (_BROKER_WORK if of_broker else 1) + len(resource.configs) + size // BYTES_PER_ITEM


def _check_min_insync_replicas(
    image: MetadataImage, resource: _Resource, wanted: Mapping[str, str], touched: Iterable[str]
) -> None:
    """Keep min.insync.replicas cluster-wide while it decides which replicas are eligible leaders (KIP-966).

    Raises:
        InvalidConfigurationError: the change sets it for a single broker, or removes the cluster's.
    """
    if resource.resource_type != ConfigResourceType.BROKER or not features.has_eligible_leader_replicas(image):
        return
    name = features.MIN_INSYNC_REPLICAS
    now = image.configs.get((resource.resource_type, resource.resource_name), {})
    if resource.resource_name and (name in touched or now.get(name) != wanted.get(name)):
        raise errors.InvalidConfigurationError(f"Broker-level {name} cannot be altered while ELR is enabled.")
    if not resource.resource_name and name not in wanted and (name in now or name in touched):
        raise errors.InvalidConfigurationError(f"Cluster-level {name} cannot be removed while ELR is enabled.")


def _forgotten_leaders(image: MetadataImage, resource: _Resource, changed: Iterable[str]) -> Iterator[Struct]:
    """Yield the records that clear eligible leaders after a change of min.insync.replicas, on which they depend.

    Partitions without an in-sync replica keep them: otherwise they could never have a leader again.
    """
    cluster_wide = resource.resource_type == ConfigResourceType.BROKER and not resource.resource_name
    if features.MIN_INSYNC_REPLICAS not in changed or not features.has_eligible_leader_replicas(image):
        return
    topics: Iterable[TopicImage] = ()
    if cluster_wide:
        topics = image.topics.values()
    elif resource.resource_type == ConfigResourceType.TOPIC and resource.resource_name in image.topics:
        topics = (image.topics[resource.resource_name],)
    for topic in topics:
        for partition in topic.partitions.values():
            if partition.isr and partition.eligible_leader_replicas:
                yield PartitionChangeRecord(
                    partition_id=partition.partition,
                    topic_id=topic.topic_id,
                    eligible_leader_replicas=[],
                    last_known_elr=[],
                )


def _is_read_only(name: str) -> bool:
    """Whether only ``server.properties`` can set the option, including Kafka's options that this broker ignores."""
    if name in DEFINITIONS:
        return DEFINITIONS[name].update_mode is UpdateMode.READ_ONLY
    if name in ALIASES:
        return _is_read_only(ALIASES[name])
    return name in UNUSED_NAMES and name not in UNUSED_DYNAMIC_NAMES


def _is_per_broker(name: str) -> bool:
    """Whether the option can be set for a single broker only, such as one of a listener that limits no connections."""
    if name in DEFINITIONS:
        return DEFINITIONS[name].update_mode is UpdateMode.PER_BROKER
    if name.startswith("listener.name."):
        return not is_listener_limit(name)
    return name in PER_BROKER_NAMES


def _limits_connections(name: str) -> bool:
    return name in ("max.connections", "max.connection.creation.rate") or is_listener_limit(name)


def _check_rate(name: str, text: str) -> None:
    """Raise `InvalidRequestError` for a limit of replication that is not a number from 0."""
    try:
        if parse_int(text.strip()) >= 0:
            return
        problem = "Value must be at least 0"
    except ValueError:
        problem = "Not a number of type LONG"
    raise errors.InvalidRequestError(f"Invalid value {text} for configuration {name}: {problem}")


def _group_bounds(config: BrokerConfig) -> dict[str, tuple[int | None, int | None]]:
    """Return the lowest and highest value of each group configuration that the broker limits."""
    found: dict[str, tuple[int | None, int | None]] = {}
    for name, defaults in group_and_metrics_configs.BOUNDS.items():
        low, high = (
            None if default is None else _bound(config, group_and_metrics_configs.bound_name(name, which), default)
            for which, default in zip(("min", "max"), defaults, strict=True)
        )
        found[name] = low, high
    return found


def _bound(config: BrokerConfig, name: str, default: int) -> int:
    if name in DEFINITIONS:
        return int(getattr(config, name.replace(".", "_")))
    try:
        return parse_int((config.unused or {}).get(name, "").strip())
    except ValueError:
        return default


def _check_pools(now: BrokerConfig, configs: Mapping[str, str]) -> None:
    """Reject changes that more than double or halve a pool size, as Kafka does. Raises `InvalidRequestError`."""
    for name in _POOLS & set(configs):
        current, wanted = int(now.text(name) or 0), int(configs[name])
        problem = None
        if wanted < current // 2:
            problem = f"value should be at least half the current value {current}"
        elif wanted > current * 2:
            problem = f"value should not be greater than double the current value {current}"
        if problem:
            raise errors.InvalidRequestError(
                f"Dynamic thread count update validation failed for {name}={wanted}, {problem}"
            )


def _definition_of(resource_type: int, name: str) -> log_config.LogConfigDefinition | ConfigDefinition | None:
    match resource_type:
        case ConfigResourceType.TOPIC:
            return log_config.DEFINITIONS.get(name)
        case ConfigResourceType.BROKER:
            return DEFINITIONS.get(name)
        case _:
            return group_and_metrics_configs.DEFINITIONS.get(resource_type, {}).get(name)


def _apply_operations(resource_type: int, values: dict[str, str], changes: Iterable[AlterableConfig]) -> None:
    for change in changes:
        try:
            operation = ConfigOperation(change.config_operation)
        except ValueError:
            raise errors.InvalidRequestError(f"Unknown operations type {change.config_operation}") from None
        if operation is ConfigOperation.DELETE:
            values.pop(change.name, None)
            continue
        if change.value is None:
            raise errors.InvalidRequestError(f"Null value not supported for : {change.name}")
        if operation is ConfigOperation.SET:
            values[change.name] = change.value
            continue
        definition = _definition_of(resource_type, change.name)
        if definition is None or definition.type is not ConfigType.LIST:
            raise errors.InvalidConfigurationError(
                f"Can't {operation.name} to key {change.name} because its type is not LIST."
            )
        given = dict.fromkeys(change.value.split(","))
        now = values.get(change.name)
        items = list(definition.default or ()) if now is None else [i for i in now.split(",") if i]
        if operation is ConfigOperation.APPEND:
            present = set(items)
            items += [item for item in given if item not in present]
        else:
            items = [item for item in items if item not in given]
        values[change.name] = ",".join(items)


def _changes(
    image: MetadataImage, resource: _Resource, wanted: Mapping[str, str], touched: Iterable[str] = ()
) -> list[Struct]:
    """Return the records that lead to the wanted values. A broker's ``touched`` keys are written even if unchanged."""
    key = (resource.resource_type, resource.resource_name)
    of_broker = resource.resource_type == ConfigResourceType.BROKER
    now = image.configs.get(key, {})
    changed = [name for name, value in wanted.items() if now.get(name) != value]
    if of_broker:
        # Setting an unchanged value makes the broker reload the files that it names.
        again = set(touched) or set(wanted)
        changed = [name for name in wanted if name in again or now.get(name) != wanted[name]]
    gone = [name for name in now if name not in wanted]
    for name in changed:
        logger.info("%s %s: %s=%s", *key, name, HIDDEN if of_broker and is_hidden(name) else wanted[name])
    records: list[Struct] = [
        ConfigRecord(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            name=name,
            value=wanted.get(name),
        )
        for name in [*changed, *gone]
    ]
    return [*records, *_forgotten_leaders(image, resource, [*changed, *gone])]
