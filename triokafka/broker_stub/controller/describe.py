"""DescribeConfigs, answered from an image."""

from __future__ import annotations

from collections.abc import Mapping

from triokafka import errors
from triokafka.broker_stub import loggers
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import topic_names
from triokafka.broker_stub.controller.config_entries import ConfigEntry, logger_entries, resource_entries
from triokafka.broker_stub.controller.configuration import ConfigurationControl, check_broker_name, not_configurable
from triokafka.broker_stub.controller.image import MetadataImage, ResourceType
from triokafka.broker_stub.controller.outcome import ItemError
from triokafka.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def describe_configs(
    image: MetadataImage,
    request: DescribeConfigsRequest,
    configuration: ConfigurationControl,
    config: BrokerConfig,
    *,
    denied: Mapping[tuple[int, str], ItemError] | None = None,
) -> DescribeConfigsResponse:
    """Configuration with sources, as many results as resources; ``denied`` are those that the client may not see."""
    results = []
    for resource in request.resources:
        failure = (denied or {}).get((resource.resource_type, resource.resource_name)) or ItemError()
        entries: list[ConfigEntry] = []
        try:
            if not failure:
                entries = _entries(image, resource, configuration, config)
        except errors.BrokerResponseError as error:
            failure = ItemError.of(error)
        wanted = resource.configuration_keys
        results.append(
            DescribeConfigsResult(
                error_code=failure.code,
                error_message=failure.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[_shown(entry, request) for entry in entries if not wanted or entry.name in wanted],
            )
        )
    return DescribeConfigsResponse(results=results)


def _entries(
    image: MetadataImage, resource: DescribeConfigsResource, configuration: ConfigurationControl, config: BrokerConfig
) -> list[ConfigEntry]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic_names.validate(name)
            if name not in image.topics:
                raise errors.UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
            return configuration.topic_entries(image, image.topic_configs(name))
        case ResourceType.BROKER:
            if name:
                check_broker_name(name, config.node_id)
            return configuration.broker_entries(image, cluster_wide=not name)
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise errors.InvalidRequestError("Broker id must not be empty")
            check_broker_name(name, config.node_id)
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
