"""Groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triokafka.blocking.admin.session import AdminPart, class_of, names_of, text_of, together
from triokafka.blocking.admin.types import GroupState, GroupType, MemberToRemove
from triokafka.blocking.enums import OffsetSpec, OffsetTimestamp
from triokafka.client.admin import GroupDescription, MemberDescription
from triokafka.client.admin import MemberToRemove as SdkMember
from triokafka.errors import KafkaError
from triokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient


class GroupPart(AdminPart):
    """The part of `KafkaAdminClient` about groups.

    Coordinators are looked up, unless ``group_coordinator_id`` names the broker; also then, when it is not (any more).
    """

    async def _assume(self, admin: AdminClient, group_ids: Iterable[str], coordinator: int | None) -> None:
        if coordinator is not None:
            await admin.assume_coordinator(group_ids, coordinator, timeout_ms=self._validate_timeout(None))

    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[GroupState | str] | None = None,
        types_filter: Iterable[GroupType | str] | None = None,
    ) -> list[dict[str, str]]:
        """The groups that brokers coordinate, all or those given, as dicts with the protocol's field names."""
        states = [GroupState.value_for(state) for state in states_filter or ()]
        types = [GroupType.value_for(kind) for kind in types_filter or ()]
        wanted = None if broker_ids is None else set(broker_ids)

        async def ask(admin: AdminClient) -> list[dict[str, str]]:
            found = await admin.list_groups_by_broker(
                states=states, types=types, timeout_ms=self._validate_timeout(None)
            )
            return [
                {
                    "group_id": one.group_id,
                    "protocol_type": one.protocol_type,
                    "group_state": one.state,
                    "group_type": one.group_type,
                }
                for node in found
                if wanted is None or node.node_id in wanted
                for one in found[node]
            ]

        return self._run(ask)

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """Groups and their members by id, as dicts with the protocol's field names, and ``error``, None or a text.

        ``include_authorized_operations`` has no effect: they are always there, as kafka-python's.
        """
        wanted = list(group_ids)

        async def ask(admin: AdminClient) -> dict[str, dict[str, Any]]:
            await self._assume(admin, wanted, group_coordinator_id)
            found = await admin.describe_groups(
                wanted, include_authorized_operations=True, timeout_ms=self._validate_timeout(None)
            )
            described: dict[str, dict[str, Any]] = {}
            for group_id in wanted:
                try:
                    described[group_id] = _described(found[group_id])
                except KafkaError as error:
                    described[group_id] = _failed(group_id, error)
            return described

        return self._run(ask)

    def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Delete groups without members; ``OK`` or the name of the error, by group."""

        wanted = list(group_ids)

        async def delete(admin: AdminClient) -> dict[str, Any]:
            await self._assume(admin, wanted, group_coordinator_id)
            return await together(wanted, admin.delete_groups(wanted, timeout_ms=self._validate_timeout(None)))

        return {
            group_id: type(outcome).__name__ if isinstance(outcome, KafkaError) else "OK"
            for group_id, outcome in self._run(delete).items()
        }

    def remove_group_members(
        self, group_id: str, members: Sequence[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, type[KafkaError]]:
        """Put members out of a group; the class of each error, or `NoError`, by member id or instance id.

        Raises:
            GroupIdNotFoundError, GroupAuthorizationFailedError, …: of the group as a whole.
            ValueError: one of them has neither id.
            UnsupportedVersionError: an instance id, and a broker before 2.4.
        """
        wanted: dict[SdkMember, str] = {}
        for member in members:
            name = member.member_id or member.group_instance_id
            if not name:
                raise ValueError(f"a member to remove needs a member_id or a group_instance_id: {member}")
            wanted[SdkMember(member.member_id or "", member.group_instance_id, member.reason)] = name

        async def remove(admin: AdminClient) -> dict[SdkMember, Any]:
            await self._assume(admin, [group_id], group_coordinator_id)
            change = admin.remove_group_members(group_id, wanted, timeout_ms=self._validate_timeout(None))
            return await together(wanted, change)

        return {wanted[member]: class_of(outcome) for member, outcome in self._run(remove).items()}

    # ---------------------------------------------------------------- offsets

    def list_group_offsets(
        self, group_specs: Mapping[str, Iterable[TopicPartition] | None] | Sequence[str] | str
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets by group: of one group, of several, or of the given partitions of each.

        A partition that was asked for and has none has the offset -1.
        """
        if isinstance(group_specs, str):
            group_specs = [group_specs]
        wanted: dict[str, list[TopicPartition] | None] = (
            {
                group: None if given is None else [TopicPartition(*one) for one in given]
                for group, given in group_specs.items()
            }
            if isinstance(group_specs, Mapping)
            else dict.fromkeys(group_specs)
        )
        if not wanted:
            raise ValueError("Empty group_specs!")

        async def ask(admin: AdminClient) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
            named = {group: given for group, given in wanted.items() if given is not None}
            found = await admin.list_offsets_of_groups(wanted, named, timeout_ms=self._validate_timeout(None))
            return {group: {**dict.fromkeys(wanted[group] or (), _NONE), **found[group]} for group in wanted}

        return self._run(ask)

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, type[KafkaError]]:
        """Set offsets of a group without members; the class of each error, or `NoError`, by partition."""

        async def alter(admin: AdminClient) -> dict[TopicPartition, Any]:
            await self._assume(admin, [group_id], group_coordinator_id)
            return await self._alter(admin, group_id, offsets)

        return {partition: class_of(outcome) for partition, outcome in self._run(alter).items()}

    async def _alter(
        self, admin: AdminClient, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, Any]:
        positions = {
            TopicPartition(*partition): position
            if position.leader_epoch is not None
            else position._replace(leader_epoch=-1)
            for partition, position in offsets.items()
        }
        change = admin.alter_group_offsets(group_id, positions, timeout_ms=self._validate_timeout(None))
        return await together(positions, change)

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Set offsets of a group without members to what is looked up, or to numbers, within what there is.

        Returns ``{"error": class, "offset": number}`` by partition.
        """
        for partition, spec in offset_specs.items():
            if not isinstance(spec, int):
                raise TypeError(
                    f"Unsupported reset target for {partition}: {spec!r} (expected OffsetSpec, OffsetTimestamp, or int"
                    " offset)"
                )
        if not offset_specs:
            return {}
        if group_coordinator_id is not None:
            self._run(lambda admin: self._assume(admin, [group_id], group_coordinator_id))
        look: Any = self.list_partition_offsets  # type: ignore[attr-defined]
        earliest = look(dict.fromkeys(offset_specs, OffsetSpec.EARLIEST))
        latest = look(dict.fromkeys(offset_specs, OffsetSpec.LATEST))
        sought = {one: spec for one, spec in offset_specs.items() if isinstance(spec, (OffsetSpec, OffsetTimestamp))}
        looked = look(sought) if sought else {}
        current = self.list_group_offsets({group_id: list(offset_specs)})[group_id]
        wanted: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, spec in offset_specs.items():
            raw = looked[partition].offset if partition in looked else int(spec)
            low, high = earliest[partition].offset, latest[partition].offset
            offset = high if raw < 0 or raw > high else max(raw, low)
            wanted[partition] = current[partition]._replace(offset=offset)

        async def alter(admin: AdminClient) -> dict[TopicPartition, Any]:
            return await self._alter(admin, group_id, wanted)

        return {
            partition: {"error": class_of(outcome), "offset": wanted[partition].offset}
            for partition, outcome in self._run(alter).items()
        }

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, type[KafkaError]]:
        """Forget offsets of partitions that no member reads; the class of each error, or `NoError`, by partition.

        Raises:
            GroupIdNotFoundError, NonEmptyGroupError, …: of the group as a whole.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]

        async def delete(admin: AdminClient) -> dict[TopicPartition, Any]:
            await self._assume(admin, [group_id], group_coordinator_id)
            change = admin.delete_group_offsets(group_id, wanted, timeout_ms=self._validate_timeout(None))
            return await together(wanted, change)

        return {partition: class_of(outcome) for partition, outcome in self._run(delete).items()}


_NONE = OffsetAndMetadata(-1)


def _described(group: GroupDescription) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.assignor,
        "members": [_member(member) for member in group.members],
        "authorized_operations": names_of(group.authorized_operations),
        "error": None,
    }


def _failed(group_id: str, error: KafkaError) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "group_state": "Dead",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": None,
        "error": text_of(error),
    }


def _member(member: MemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": {
            "topics": list(member.subscription or ()),
            "user_data": member.user_data,
            "owned_partitions": _by_topic(member.owned_partitions),
            "generation_id": member.generation_id,
            "rack_id": member.rack_id,
        },
        "member_assignment": {
            "assigned_partitions": _by_topic(member.assignment),
            "user_data": member.assignment_user_data,
        },
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]
