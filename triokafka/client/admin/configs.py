"""Configurations of topics, brokers and other resources: describe, alter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.retries import AdminRetries
from triokafka.client.admin.types import AlterConfig, ConfigEntry, ConfigResource, ConfigSynonym, Results
from triokafka.protocol.api import alter_configs, incremental_alter_configs
from triokafka.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from triokafka.protocol.api.list_config_resources import ListConfigResourcesRequest
from triokafka.protocol.configuration import ConfigOperation, ConfigResourceType, ConfigSource
from triokafka.protocol.message import Request, Response

R = TypeVar("R", bound=Response)
A = TypeVar("A", alter_configs.AlterConfigsResponse, incremental_alter_configs.IncrementalAlterConfigsResponse)

_OWN_BROKER_TYPES = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
_OF_PROCESS = (ConfigResourceType.BROKER_LOGGER,)


class ConfigAdmin:
    """The part of `AdminClient` about configurations."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Return the configurations of resources: entries by name, all or those in ``keys``.

        Reading a resource that failed raises its error. With synonyms, each entry lists the values that would apply if
        it were not set.
        """

        async def do_round(
            items: list[ConfigResource], call: CallRouting
        ) -> Mapping[ConfigResource, dict[str, ConfigEntry] | Exception]:
            outcomes: dict[ConfigResource, dict[str, ConfigEntry] | Exception] = {}
            for node, group in _by_node(items).items():
                request = DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(
                            resource_type=r.type,
                            resource_name=r.name,
                            configuration_keys=None if keys is None else list(keys),
                        )
                        for r in group
                    ],
                    include_synonyms=include_synonyms,
                    include_documentation=include_documentation,
                )
                response = await self._to(call, node, request, min_version=3 if include_documentation else None)
                for result in response.results:
                    resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                    outcomes[resource] = self._retries.error(
                        result.error_code, _text(resource), result.error_message
                    ) or {c.name: _entry(c) for c in result.configs}
            return outcomes

        return await self._retries.each(resources, do_round, timeout_ms)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfig] | Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Change individual values and keep the others (brokers from 2.3 on).

        A plain mapping sets values; None restores the default.

        Raises:
            InvalidConfigurationError, UnknownTopicOrPartitionError, …: one resource could not be changed; an
                `ExceptionGroup` when several could not.
        """
        wanted = {resource: _operations(change) for resource, change in changes.items()}

        def request_of(group: list[ConfigResource]) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
            return incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[
                    incremental_alter_configs.AlterConfigsResource(
                        resource_type=r.type,
                        resource_name=r.name,
                        configs=[
                            incremental_alter_configs.AlterableConfig(
                                name=c.name, config_operation=c.operation, value=c.value
                            )
                            for c in wanted[r]
                        ],
                    )
                    for r in group
                ],
                validate_only=validate_only,
            )

        await self._alter(wanted, request_of, timeout_ms)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Replace whole configurations: values that are not given return to their defaults.

        For brokers older than 2.3. `incremental_alter_configs` is safer, because it does not undo concurrent changes;
        this method raises the same errors.
        """

        def request_of(group: list[ConfigResource]) -> alter_configs.AlterConfigsRequest:
            return alter_configs.AlterConfigsRequest(
                resources=[
                    alter_configs.AlterConfigsResource(
                        resource_type=r.type,
                        resource_name=r.name,
                        configs=[
                            alter_configs.AlterableConfig(name=name, value=value) for name, value in configs[r].items()
                        ],
                    )
                    for r in group
                ],
                validate_only=validate_only,
            )

        await self._alter(configs, request_of, timeout_ms)

    async def _alter(
        self,
        wanted: Mapping[ConfigResource, object],
        request_of: Callable[[list[ConfigResource]], Request[A]],
        timeout_ms: float | None,
    ) -> None:
        """Change resources; the resources of each broker go in a request to that broker."""

        async def do_round(items: list[ConfigResource], call: CallRouting) -> Mapping[ConfigResource, Exception | None]:
            outcomes: dict[ConfigResource, Exception | None] = {}
            # The active controller changes the configuration of every broker.
            types = _OF_PROCESS if self._retries.at_controllers else _OWN_BROKER_TYPES
            for node, group in _by_node(items, types).items():
                response = await self._to(call, node, request_of(group))
                outcomes.update(
                    self._outcome(r.error_code, r.resource_type, r.resource_name, r.error_message)
                    for r in response.responses
                )
            return outcomes

        await self._retries.change(wanted, do_round, timeout_ms)

    async def reset_configs(
        self,
        keys: Mapping[ConfigResource, Iterable[str]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Reset individual values to their defaults. Raises as `incremental_alter_configs`."""
        changes = {
            resource: [AlterConfig(name, operation=ConfigOperation.DELETE) for name in names]
            for resource, names in keys.items()
        }
        await self.incremental_alter_configs(changes, validate_only=validate_only, timeout_ms=timeout_ms)

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = (), *, timeout_ms: float | None = None
    ) -> list[ConfigResource]:
        """List the resources with a configuration, of the given types or all (brokers from 4.1 on; KIP-1142)."""
        wanted = list(types)

        async def ask(call: CallRouting) -> list[ConfigResource]:
            min_version = None if wanted == [ConfigResourceType.CLIENT_METRICS] else 1
            response = await call.to_any(
                ListConfigResourcesRequest(resource_types=[] if min_version is None else [int(t) for t in wanted]),
                min_version=min_version,
            )
            self._retries.check(response.error_code, "config resources")
            found = [
                ConfigResource(ConfigResourceType(r.resource_type), r.resource_name) for r in response.config_resources
            ]
            return [resource for resource in found if not wanted or resource.type in wanted]

        return await self._retries.once(ask, timeout_ms)

    def _outcome(self, code: int, kind: int, name: str, message: str | None) -> tuple[ConfigResource, Exception | None]:
        resource = ConfigResource(ConfigResourceType(kind), name)
        return resource, self._retries.error(code, _text(resource), message)

    async def _to(
        self, call: CallRouting, node: int | None, request: Request[R], *, min_version: int | None = None
    ) -> R:
        if node is None:
            return await call.to_any(request, min_version=min_version)
        await call.node(node)
        return await call.to_node(node, request, min_version=min_version)


def _by_node(
    resources: Iterable[ConfigResource], own_types: Sequence[ConfigResourceType] = _OWN_BROKER_TYPES
) -> dict[int | None, list[ConfigResource]]:
    """Group resources by the node that answers for them: those of ``own_types`` only their own, others any (None)."""
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        node = int(resource.name) if resource.type in own_types and resource.name else None
        groups.setdefault(node, []).append(resource)
    return groups


def _operations(change: Iterable[AlterConfig] | Mapping[str, str | None]) -> list[AlterConfig]:
    if isinstance(change, Mapping):
        return [
            AlterConfig(name, value) if value is not None else AlterConfig(name, operation=ConfigOperation.DELETE)
            for name, value in change.items()
        ]
    return list(change)


def _entry(described: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        described.name,
        described.value,
        ConfigSource(described.config_source),
        described.read_only,
        described.is_sensitive,
        tuple(ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in described.synonyms),
        described.documentation,
        described.config_type,
    )


def _text(resource: ConfigResource) -> str:
    if resource == ConfigResource.broker():
        return "the default of all brokers"
    return f"{resource.type.name.lower()} {resource.name!r}"
