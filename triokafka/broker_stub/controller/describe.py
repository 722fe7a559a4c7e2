"""DescribeConfigs, answered from an image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from triokafka import errors
from triokafka.broker_stub import loggers
from triokafka.broker_stub.controller.config_entries import (
    ConfigEntry,
    inherited_entries,
    logger_entries,
    resource_entries,
    topic_entries,
)
from triokafka.broker_stub.controller.configuration import ConfigurationControl, check_broker_name, not_configurable
from triokafka.broker_stub.metadata import topic_names
from triokafka.broker_stub.metadata.image import MetadataImage, ResourceType
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def describe_configs(
    image: MetadataImage,
    request: DescribeConfigsRequest,
    configuration: ConfigurationControl,
    *,
    denied: Mapping[tuple[int, str], ItemError] | None = None,
) -> Iterator[DescribeConfigsResult]:
    """Configuration with sources, as many results as resources; ``denied`` are those that the client may not see.

    One by one, since there may be very many, all as of ``image``. What topics inherit is made once for all.
    """
    entries_of = _Entries(image, configuration)
    common: dict[int, DescribeConfigsResourceResult] = {}  # by the entry's identity
    for resource in request.resources:
        failure = (denied or {}).get((resource.resource_type, resource.resource_name)) or ItemError()
        entries: list[ConfigEntry] = []
        try:
            if not failure:
                entries = entries_of.resource(resource)
        except errors.BrokerResponseError as error:
            failure = ItemError.of(error)
        wanted = resource.configuration_keys
        shown = []
        for entry in entries:
            if not wanted or entry.name in wanted:
                result = common.get(id(entry))
                if result is None:
                    result = _shown(entry, request)
                    if entries_of.is_inherited(entry):
                        common[id(entry)] = result
                shown.append(result)
        yield DescribeConfigsResult(
            error_code=failure.code,
            error_message=failure.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=shown,
        )


class _Entries:
    """The entries of resources of one image."""

    def __init__(self, image: MetadataImage, configuration: ConfigurationControl) -> None:
        self._image = image
        self._configuration = configuration
        self._inherited: dict[str, ConfigEntry] | None = None

    def is_inherited(self, entry: ConfigEntry) -> bool:
        """Whether all topics that say nothing else have this very entry."""
        return self._inherited is not None and self._inherited.get(entry.name) is entry

    def resource(self, resource: DescribeConfigsResource) -> list[ConfigEntry]:
        """Of one resource. Raises `BrokerResponseError`."""
        name, image, configuration = resource.resource_name, self._image, self._configuration
        match resource.resource_type:
            case ResourceType.TOPIC:
                topic_names.validate(name)
                if name not in image.topics:
                    raise errors.UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
                if self._inherited is None:
                    self._inherited = inherited_entries(configuration.config, image)
                return topic_entries(self._inherited, image.topic_configs(name))
            case ResourceType.BROKER:
                if name:
                    check_broker_name(name, configuration.config.node_id)
                return configuration.broker_entries(image, cluster_wide=not name)
            case ResourceType.BROKER_LOGGER:
                if not name:
                    raise errors.InvalidRequestError("Broker id must not be empty")
                check_broker_name(name, configuration.config.node_id)
                return logger_entries(loggers.levels())
            case ResourceType.GROUP | ResourceType.CLIENT_METRICS as kind:
                if not name:
                    raise errors.InvalidRequestError("The name of a group or of client metrics must not be empty")
                return resource_entries(kind, image.configs.get((kind, name), {}))
            case other:
                raise not_configurable(other)


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
