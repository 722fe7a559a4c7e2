"""The calls of `KafkaAdminClient` about groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triokafka.blocking.admin.partitions import PartitionCalls
from triokafka.blocking.admin.session import AdminSession, K, Work, class_of, names_of, text_of, together
from triokafka.blocking.admin.types import GroupState, GroupType, MemberToRemove
from triokafka.blocking.enums import OffsetSpec, OffsetTimestamp
from triokafka.client.admin import GroupDescription, MemberDescription
from triokafka.client.admin import MemberToRemove as SdkMember
from triokafka.errors import KafkaError
from triokafka.structs import OffsetAndMetadata, TopicPartition, by_topic

if TYPE_CHECKING:
    from triokafka import AdminClient


class GroupCalls:
    """Lists, describes and deletes groups, removes members, and reads and changes offsets.

    ``group_coordinator_id`` names the coordinator. Without it, or if that broker is not the coordinator, the
    coordinator is looked up.
    """

    def __init__(self, session: AdminSession, partitions: PartitionCalls) -> None:
        self._session = session
        self._partitions = partitions

    async def _assume(self, admin: AdminClient, group_ids: Iterable[str], coordinator: int | None) -> None:
        if coordinator is not None:
            await admin.assume_coordinator(group_ids, coordinator, timeout_ms=self._session.timeout_ms())

    def _change(
        self, group_ids: Iterable[str], coordinator: int | None, items: Iterable[K], change: Work[Any]
    ) -> dict[K, Any]:
        """Run a call that changes ``items`` of groups; return the outcome of each."""

        async def work(admin: AdminClient) -> dict[K, Any]:
            await self._assume(admin, group_ids, coordinator)
            return await together(items, change(admin))

        return self._session.run(work)

    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[GroupState | str] | None = None,
        types_filter: Iterable[GroupType | str] | None = None,
    ) -> list[dict[str, str]]:
        """List the groups of all brokers, or of those given, as dicts with the protocol's field names."""
        states = [GroupState.value_for(state) for state in states_filter or ()]
        types = [GroupType.value_for(kind) for kind in types_filter or ()]
        wanted = None if broker_ids is None else set(broker_ids)

        async def ask(admin: AdminClient) -> list[dict[str, str]]:
            found = await admin.list_groups_by_broker(states=states, types=types, timeout_ms=self._session.timeout_ms())
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

        return self._session.run(ask)

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """Describe groups and their members by id, with the protocol's field names and ``error`` (None or text).

        ``include_authorized_operations`` has no effect: operations are always included, as in kafka-python.
        """
        wanted = list(group_ids)

        async def ask(admin: AdminClient) -> dict[str, dict[str, Any]]:
            await self._assume(admin, wanted, group_coordinator_id)
            found = await admin.describe_groups(
                wanted, include_authorized_operations=True, timeout_ms=self._session.timeout_ms()
            )
            described: dict[str, dict[str, Any]] = {}
            for group_id in wanted:
                try:
                    described[group_id] = _described(found[group_id])
                except KafkaError as error:
                    described[group_id] = _failed(group_id, error)
            return described

        return self._session.run(ask)

    def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Delete groups without members. Returns ``OK`` or the name of the error, by group."""
        wanted = list(group_ids)
        patience = self._session.timeout_ms()
        outcomes = self._change(
            wanted, group_coordinator_id, wanted, lambda admin: admin.delete_groups(wanted, timeout_ms=patience)
        )
        return {
            group_id: type(outcome).__name__ if isinstance(outcome, KafkaError) else "OK"
            for group_id, outcome in outcomes.items()
        }

    def remove_group_members(
        self, group_id: str, members: Sequence[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, type[KafkaError]]:
        """Remove members from a group. Returns the class of each error, or `NoError`, by member id or instance id.

        Raises:
            GroupIdNotFoundError, GroupAuthorizationFailedError, …: the call failed for the whole group.
            ValueError: a member has neither id.
            UnsupportedVersionError: a member has an instance id, and the broker is older than 2.4.
        """
        wanted: dict[SdkMember, str] = {}
        for member in members:
            name = member.member_id or member.group_instance_id
            if not name:
                raise ValueError(f"a member to remove needs a member_id or a group_instance_id: {member}")
            wanted[SdkMember(member.member_id or "", member.group_instance_id, member.reason)] = name
        patience = self._session.timeout_ms()
        outcomes = self._change(
            [group_id],
            group_coordinator_id,
            wanted,
            lambda admin: admin.remove_group_members(group_id, wanted, timeout_ms=patience),
        )
        return {wanted[member]: class_of(outcome) for member, outcome in outcomes.items()}

    # ---------------------------------------------------------------- offsets

    def list_group_offsets(
        self, group_specs: Mapping[str, Iterable[TopicPartition] | None] | Sequence[str] | str
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return committed offsets by group: of one group, of several, or of the given partitions of each.

        A requested partition without a committed offset has the offset -1.
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
            found = await admin.list_offsets_of_groups(wanted, named, timeout_ms=self._session.timeout_ms())
            return {group: {**dict.fromkeys(wanted[group] or (), _NONE), **found[group]} for group in wanted}

        return self._session.run(ask)

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | Any],  # also with None as leader epoch
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, type[KafkaError]]:
        """Set offsets of a group without members. Returns the class of each error, or `NoError`, by partition."""
        positions = {
            TopicPartition(*partition): position
            if position.leader_epoch is not None
            else position._replace(leader_epoch=-1)
            for partition, position in offsets.items()
        }
        patience = self._session.timeout_ms()
        outcomes = self._change(
            [group_id],
            group_coordinator_id,
            positions,
            lambda admin: admin.alter_group_offsets(group_id, positions, timeout_ms=patience),
        )
        return {partition: class_of(outcome) for partition, outcome in outcomes.items()}

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int | Any],  # checked below
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Set offsets of a group without members to an `OffsetSpec`, a time or a number, within the log's bounds.

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
            self._session.run(lambda admin: self._assume(admin, [group_id], group_coordinator_id))
        look: Any = self._partitions.list_partition_offsets
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
        return {
            partition: {"error": error, "offset": wanted[partition].offset}
            for partition, error in self.alter_group_offsets(group_id, wanted).items()
        }

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, type[KafkaError]]:
        """Delete offsets of partitions that no member reads. Returns each error's class, or `NoError`, by partition.

        Raises:
            GroupIdNotFoundError, NonEmptyGroupError, …: the call failed for the whole group.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        patience = self._session.timeout_ms()
        outcomes = self._change(
            [group_id],
            group_coordinator_id,
            wanted,
            lambda admin: admin.delete_group_offsets(group_id, wanted, timeout_ms=patience),
        )
        return {partition: class_of(outcome) for partition, outcome in outcomes.items()}


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
    return [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic(partitions).items()]
