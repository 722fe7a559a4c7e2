"""DescribeConfigs (API key 32): the configuration of topics, brokers, loggers and groups with each value's source.

Versions 1-4. v1: sources and synonyms. v3: types and documentation. v4: flexible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from triokafka import errors, topic_names
from triokafka.broker_stub import loggers
from triokafka.broker_stub.api.config_resources import config_accesses, denied_resources, failed_resources
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.metadata.config_resource_checks import check_broker_name, not_configurable
from triokafka.broker_stub.metadata.described_configs import (
    ConfigEntry,
    broker_entries,
    inherited_entries,
    logger_entries,
    resource_entries,
    topic_entries,
)
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.security.acl import AclOperation

MAX_BYTES: Final = 64 << 20
"""The size of a response above which no further resource is described. Ten thousand topics take most of it."""
_KEY_BYTES: Final = 16
_WORK: Final = 2  # a resource has dozens of keys


def _failed(
    request: DescribeConfigsRequest, context: RequestContext, code: int, message: str
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=failed_resources(DescribeConfigsResult, request.resources, code, message))


@handles(
    DescribeConfigsRequest,
    versions=range(1, 5),
    accesses=config_accesses(AclOperation.DESCRIBE_CONFIGS),
    on_error=_failed,
)
async def describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Read the configuration from the metadata image.

    The handler yields to other tasks between resources, since tools request all topics in one request.
    """
    image, config = context.metadata.image, context.services.configuration.config
    denied = denied_resources(request.resources, AclOperation.DESCRIBE_CONFIGS, context)
    response = DescribeConfigsResponse()
    budget = WorkBudget()
    for result in describe_resources(image, request, config, denied=denied):
        response.results.append(result)
        context.items += len(result.configs)
        await budget.spend(_WORK)
    return response


def describe_resources(
    image: MetadataImage,
    request: DescribeConfigsRequest,
    config: BrokerConfig,
    *,
    denied: Mapping[tuple[int, str], ItemError] | None = None,
) -> Iterator[DescribeConfigsResult]:
    """Yield one result per resource, all read from ``image``.

    ``denied`` holds the errors of the resources that the client may not see. ``config`` is the broker's configuration
    at its start. All topics share the objects of inherited entries, and so do all groups without a configuration and
    all mentions of a broker: a small request must not take gigabytes.
    """
    entries_of = _Entries(image, config)
    common: dict[int, tuple[DescribeConfigsResourceResult, int]] = {}  # by the entry's id()
    size = 0
    for resource in request.resources:
        failure = (denied or {}).get((resource.resource_type, resource.resource_name)) or ItemError()
        entries: list[ConfigEntry] = []
        try:
            if not failure:
                if size > MAX_BYTES:
                    raise errors.PolicyViolationError("The response would be too large; describe fewer at once.")
                entries = entries_of.resource(resource)
        except errors.BrokerResponseError as error:
            failure = ItemError.of(error)
        wanted = frozenset(resource.configuration_keys or ())
        shown = []
        for entry in entries:
            if not wanted or entry.name in wanted:
                known = common.get(id(entry))
                if known is None:
                    result = _shown(entry, request)
                    known = result, _size(result)
                    if entries_of.is_shared(entry):
                        common[id(entry)] = known
                shown.append(known[0])
                size += known[1]
        yield DescribeConfigsResult(
            error_code=failure.code,
            error_message=failure.message or "",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=shown,
        )


def _size(result: DescribeConfigsResourceResult) -> int:
    """Estimate the bytes of one key in a response."""
    texts = (result.name, result.value, result.documentation)
    synonyms = sum(_KEY_BYTES + len(one.name) + len(one.value or "") for one in result.synonyms)
    return _KEY_BYTES + sum(len(text or "") for text in texts) + synonyms


class _Entries:
    """The configuration entries of the resources in one metadata image."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config
        self._inherited: dict[str, ConfigEntry] | None = None
        self._shared: dict[tuple[int, str], list[ConfigEntry]] = {}
        self._shared_ids: set[int] = set()

    def is_shared(self, entry: ConfigEntry) -> bool:
        """Whether ``entry`` is one that several resources, or several mentions of one, share."""
        return id(entry) in self._shared_ids

    def _share(self, kind: int, name: str, make: Callable[[], list[ConfigEntry]]) -> list[ConfigEntry]:
        entries = self._shared.get((kind, name))
        if entries is None:
            entries = self._shared[kind, name] = list(make())
            self._shared_ids.update(map(id, entries))
        return entries

    def resource(self, resource: DescribeConfigsResource) -> list[ConfigEntry]:
        """Return the entries of one resource. Raises `BrokerResponseError`."""
        name, image, config = resource.resource_name, self._image, self._config
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                topic_names.validate(name)
                if name not in image.topics:
                    raise errors.UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
                if self._inherited is None:
                    self._inherited = inherited_entries(config, image)
                    self._shared_ids.update(map(id, self._inherited.values()))
                return topic_entries(self._inherited, image.topic_configs(name))
            case ConfigResourceType.BROKER:
                if name:
                    check_broker_name(name, config.node_id)
                return self._share(
                    ConfigResourceType.BROKER, name, lambda: broker_entries(config, image, cluster_wide=not name)
                )
            case ConfigResourceType.BROKER_LOGGER:
                if not name:
                    raise errors.InvalidRequestError("Broker id must not be empty")
                check_broker_name(name, config.node_id)
                return self._share(ConfigResourceType.BROKER_LOGGER, name, lambda: logger_entries(loggers.levels()))
            case ConfigResourceType.GROUP | ConfigResourceType.CLIENT_METRICS as kind:
                if not name:
                    what = "Group" if kind == ConfigResourceType.GROUP else "Client metrics subscription"
                    raise errors.InvalidRequestError(f"{what} name must not be empty")
                own = image.configs.get((kind, name))
                if not own:
                    return self._share(kind, "", lambda: resource_entries(kind, {}))
                return resource_entries(kind, own)
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
