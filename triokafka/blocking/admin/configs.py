"""The calls of `KafkaAdminClient` about configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triokafka.blocking.admin.session import AdminSession, each, text_of
from triokafka.blocking.admin.types import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
)
from triokafka.client.admin import AlterConfig, ConfigEntry, ConfigOperation
from triokafka.client.admin import ConfigResource as SdkResource
from triokafka.client.admin import ConfigResourceType as SdkType

if TYPE_CHECKING:
    from triokafka import AdminClient


class ConfigCalls:
    """Describes and changes configurations, and lists the resources that have one."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    def describe_configs(
        self,
        config_resources: Sequence[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str | int = "modified",
    ) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
        """Describe values by resource type (in lower case), resource and name, with the protocol's field names.

        Arguments:
            config_resources: where ``configs`` has names, only those are described.
            include_synonyms: also the values that would apply if others were not set.
            config_filter: which values: all, dynamic, modified, default or static.
        """
        wanted = ConfigFilterType.build_from(config_filter)
        resources = list(config_resources)

        async def ask(admin: AdminClient) -> dict[str, dict[str, dict[str, Any]]]:
            found: dict[str, dict[str, dict[str, Any]]] = {}
            for resource in resources:
                entries = await self._entries(admin, resource, include_synonyms)
                found.setdefault(resource.resource_type.name.lower(), {})[resource.name] = {
                    entry.name: _described(entry, include_synonyms)
                    for entry in entries.values()
                    if not _is_skipped(entry, wanted)
                }
            return found

        return self._session.run(ask)

    async def _entries(
        self, admin: AdminClient, resource: ConfigResource, include_synonyms: bool = False, *, all_keys: bool = False
    ) -> dict[str, ConfigEntry]:
        keys = None if all_keys or not resource.configs else list(resource.configs)
        one = _sdk_resource(resource)
        patience = self._session.timeout_ms()
        found = await admin.describe_configs([one], keys=keys, include_synonyms=include_synonyms, timeout_ms=patience)
        return found[one]

    def alter_configs(
        self,
        config_resources: Sequence[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Change values. Returns ``OK`` or the error's text, by resource type and resource.

        Arguments:
            config_resources: with ``configs`` as ``{name: value}`` or ``{name: (operation, value)}``.
            validate_only: check everything and change nothing.
            raise_on_unknown: refuse names that the broker does not list, before anything is changed.
            incremental: False resets all values that are not named to their defaults, and allows only SET.

        Raises:
            ValueError: a name is unknown.
        """
        return self._change(config_resources, validate_only, raise_on_unknown, incremental is not False)

    def reset_configs(
        self,
        config_resources: Sequence[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Reset values to their defaults: those named in ``configs``, or all that were set.

        With ``incremental=False`` (for brokers before 2.3) the remaining values replace the whole configuration.
        Results and errors are those of `alter_configs`.
        """
        return self._change(config_resources, validate_only, raise_on_unknown, incremental is not False, reset=True)

    def _change(
        self,
        resources: Iterable[ConfigResource],
        validate_only: bool,
        raise_on_unknown: bool,
        incremental: bool,
        *,
        reset: bool = False,
    ) -> dict[str, dict[str, str]]:
        patience = self._session.timeout_ms()

        async def one(admin: AdminClient, resource: ConfigResource) -> None:
            target = _sdk_resource(resource)
            if reset and not incremental:
                left = await self._set_values(admin, resource, set(resource.configs)) if resource.configs else {}
                await admin.alter_configs({target: left}, validate_only=validate_only, timeout_ms=patience)
                return
            changes = _resets(resource, await self._entries(admin, resource, all_keys=True)) if reset else None
            if changes is None:
                changes = [_operation(name, given) for name, given in dict(resource.configs or {}).items()]
            if incremental:
                await admin.incremental_alter_configs(
                    {target: changes}, validate_only=validate_only, timeout_ms=patience
                )
                return
            if any(change.operation is not ConfigOperation.SET for change in changes):
                raise ValueError("Non-incremental AlterConfigsRequest does not support other operations than SET")
            kept = await self._set_values(admin, resource, set())
            values = {**kept, **{change.name: change.value for change in changes}}
            await admin.alter_configs({target: values}, validate_only=validate_only, timeout_ms=patience)

        async def change(admin: AdminClient) -> dict[str, dict[str, str]]:
            wanted = list(resources)
            if raise_on_unknown:
                for resource in wanted:
                    known = await self._entries(admin, resource, all_keys=True)
                    unknown = {name for name in resource.configs or () if name not in known or known[name].is_read_only}
                    if unknown:
                        raise ValueError(f"Unrecognized configs: {unknown}")
            outcomes = await each(wanted, lambda resource: one(admin, resource))
            found: dict[str, dict[str, str]] = {}
            for resource, outcome in outcomes.items():
                found.setdefault(resource.resource_type.name.lower(), {})[resource.name] = text_of(outcome)
            return found

        return self._session.run(change)

    async def _set_values(self, admin: AdminClient, resource: ConfigResource, but: set[str]) -> dict[str, str | None]:
        """Return the values that were set, except those in ``but``."""
        entries = (await self._entries(admin, resource, all_keys=True)).values()
        set_ones = (entry for entry in entries if _source(entry).is_modified() and entry.value is not None)
        return {entry.name: entry.value for entry in set_ones if entry.name not in but}

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str | int] | None = None
    ) -> dict[str, list[str]]:
        """List the names of all resources with a configuration, by type in lower case.

        Raises:
            UnsupportedVersionError: the broker does not support the request.
        """
        types = [SdkType(ConfigResourceType.build_from(one).value) for one in resource_types or ()]
        found: dict[str, list[str]] = {}
        for resource in self._session.run(
            lambda admin: admin.list_config_resources(types, timeout_ms=self._session.timeout_ms())
        ):
            found.setdefault(resource.type.name.lower(), []).append(resource.name)
        return found


def _sdk_resource(resource: ConfigResource) -> SdkResource:
    kind, name = SdkType(resource.resource_type.value), str(resource.name)
    if kind in (SdkType.BROKER, SdkType.BROKER_LOGGER) and name and not name.isdecimal():
        raise ValueError(f"Broker resource names must be an integer or a string represented integer, not {name!r}")
    return SdkResource(kind, name)


def _source(entry: ConfigEntry) -> ConfigSourceType:
    return ConfigSourceType(int(entry.source))


def _is_skipped(entry: ConfigEntry, wanted: ConfigFilterType) -> bool:
    return (wanted is ConfigFilterType.DYNAMIC and entry.is_read_only) or wanted.should_skip(_source(entry))


def _described(entry: ConfigEntry, include_synonyms: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": _source(entry).name,
        "is_sensitive": entry.is_sensitive,
        "config_type": ConfigType.build_from(entry.config_type).name,
        "documentation": entry.documentation,
        "synonyms": [],
    }
    if include_synonyms:
        described["synonyms"] = [
            {"name": one.name, "value": one.value, "source": ConfigSourceType(int(one.source)).name}
            for one in entry.synonyms
        ]
    return described


def _operation(name: str, given: Any) -> AlterConfig:
    operation, value = given if isinstance(given, tuple) else (AlterConfigOp.SET, given)
    kind = ConfigOperation(AlterConfigOp.value_for(operation))
    text = None if kind is ConfigOperation.DELETE or value is None else str(value)
    return AlterConfig(name, text, kind)


def _resets(resource: ConfigResource, entries: Mapping[str, ConfigEntry]) -> list[AlterConfig]:
    names = list(resource.configs or ()) or [
        entry.name for entry in entries.values() if _source(entry).is_modified() and not entry.is_read_only
    ]
    return [AlterConfig(name, None, ConfigOperation.DELETE) for name in names]
