"""Requests to every API under every kind of permission, and a broker's response to each user.

`scenarios` are users with their ACLs: one permission alone, the usual pairs, and everything but one permission.
`REQUESTS` are sent in the name of each of them. A response is reduced to what depends on permissions: its error codes
and the resources that it names. Two brokers with the same ACLs must give equal responses.

Requests change nothing, or something that only the same user's later requests can see: topics ``dN-t`` belong to user
N.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import trio

from tests.support.odd_requests import Asker, request
from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest
from triokafka.protocol.message import Struct
from triokafka.records import encode_batch
from triokafka.security.acl import AclOperation, AclPatternType, AclPermissionType, ResourceType

ADMIN: Final = "admin"
PASSWORD: Final = "secret"
_PATIENCE: Final = 20
_ZERO: Final = UUID(int=0)
_UNKNOWN: Final = UUID(int=99)
_NODE: Final = 1

TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID,
)  # fmt: skip
_OPERATIONS: Final[dict[ResourceType, tuple[AclOperation, ...]]] = {
    TOPIC: (
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
        AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    ),
    GROUP: (
        AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    CLUSTER: (
        AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    TXN: (AclOperation.WRITE, AclOperation.DESCRIBE),
}  # fmt: skip
_ALL: Final = AclOperation.ALL

TOPICS: Final = ("ab", "abz", "zz")
"""Literal ACLs are for ``ab``, prefixed ones for ``ab`` and ``abz``, and ``*`` is for all."""


class Rule(NamedTuple):
    """One ACL of a user. ``form`` is literal, prefixed, wildcard, or absent (for another host)."""

    kind: ResourceType
    operation: AclOperation
    form: str = "literal"
    permission: AclPermissionType = AclPermissionType.ALLOW


class Scenario(NamedTuple):
    """A user and the ACLs; ``name`` is for messages."""

    number: int
    name: str
    rules: tuple[Rule, ...]

    @property
    def user(self) -> str:
        """The user's name."""
        return f"user{self.number}"


def scenarios() -> list[Scenario]:
    """Return all scenarios."""
    read, write, describe = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
    create, delete, alter = AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER
    configs = AclOperation.DESCRIBE_CONFIGS
    sets: list[tuple[Rule, ...]] = [()]
    for kind, operations in _OPERATIONS.items():
        for number, operation in enumerate((*operations, _ALL)):
            forms = ["literal"] if kind is CLUSTER else ["literal", ("prefixed", "wildcard")[number % 2]]
            sets += [(Rule(kind, operation, form),) for form in forms]
    sets += [(Rule(TOPIC, _ALL, form),) for form in ("prefixed", "wildcard", "elsewhere")]
    everything = tuple(Rule(kind, _ALL, "wildcard") for kind in _OPERATIONS)
    sets.append(everything)
    turns = itertools.cycle(("literal", "prefixed", "wildcard"))
    for kind, operations in _OPERATIONS.items():
        for operation in operations:
            form = "literal" if kind is CLUSTER else next(turns)
            sets.append((*everything, Rule(kind, operation, form, AclPermissionType.DENY)))
    sets += [tuple(Rule(kind, operation) for kind, operation in pairs) for pairs in (
        ((GROUP, read), (TOPIC, read)),
        ((GROUP, read), (TOPIC, describe)),
        ((GROUP, describe), (TOPIC, describe)),
        ((GROUP, delete), (TOPIC, read)),
        ((GROUP, describe), (CLUSTER, describe)),
        ((TXN, write), (TOPIC, write)),
        ((TXN, write), (GROUP, read)),
        ((TXN, write), (GROUP, read), (TOPIC, read)),
        ((TXN, write), (CLUSTER, AclOperation.IDEMPOTENT_WRITE)),
        ((TXN, describe), (TOPIC, describe)),
        ((TOPIC, delete), (TOPIC, describe), (TOPIC, configs)),
        ((TOPIC, create), (TOPIC, configs)),
        ((TOPIC, describe), (CLUSTER, create)),
        ((TOPIC, describe), (CLUSTER, delete)),
        ((TOPIC, describe), (CLUSTER, alter)),
        ((TOPIC, configs), (CLUSTER, create)),
    )]  # fmt: skip
    return [Scenario(number, _text(rules), rules) for number, rules in enumerate(sets)]


def _text(rules: Sequence[Rule]) -> str:
    return " + ".join(
        f"{rule.permission.name.lower()} {rule.kind.name} {rule.operation.name} {rule.form}" for rule in rules
    )


def acls(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """Return the ACLs of a scenario as items of CreateAcls."""
    own = f"d{scenario.number}-"
    for rule in scenario.rules:
        match rule.form, rule.kind:
            case _, ResourceType.CLUSTER:
                names = ["kafka-cluster"]
            case "wildcard", _:
                names = ["*"]
            case "prefixed", ResourceType.TOPIC:
                names = ["ab", own]
            case "prefixed", _:
                names = ["ga"]
            case _, ResourceType.TOPIC:
                names = ["ab", f"{own}t", f"{own}u"]
            case _:
                names = ["ga", "gaa", "gac"]
        for name in names:
            yield {
                "resource_type": rule.kind,
                "resource_name": name,
                "resource_pattern_type": AclPatternType.PREFIXED if rule.form == "prefixed" else AclPatternType.LITERAL,
                "principal": f"User:{scenario.user}",
                "host": "10.1.2.3" if rule.form == "elsewhere" else "*",
                "operation": rule.operation,
                "permission_type": rule.permission,
            }


class Asked(NamedTuple):
    """One request of the matrix. ``N`` in a name is the number of the user; ``id:NAME`` is the id of a topic."""

    case: str
    api: str
    version: int
    values: Mapping[str, Any]


def _named(**more: Any) -> list[dict[str, Any]]:
    return [{"name": name, **more} for name in (*TOPICS, "absent")]


def _by_id(field: str = "topic_id", **more: Any) -> list[dict[str, Any]]:
    return [{field: f"id:{name}", **more} for name in (*TOPICS, "unknown")]


def _batch(producer_id: int = -1, *, transactional: bool = False) -> bytes:
    record = (1_700_000_000_000, b"k", b"v", ())
    if producer_id == -1:
        return bytes(encode_batch([record]))
    return bytes(
        encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional)
    )


_FETCHED: Final = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
_FETCH: Final = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 100_000, "session_epoch": -1}
_CONFIG_TARGETS: Final[list[dict[str, Any]]] = [
    {"resource_type": 2, "resource_name": "ab"},
    {"resource_type": 2, "resource_name": "zz"},
    {"resource_type": 2, "resource_name": "absent"},
    {"resource_type": 4, "resource_name": "1"},
    {"resource_type": 4, "resource_name": ""},
    {"resource_type": 8, "resource_name": "1"},
    {"resource_type": 16, "resource_name": "m"},
    {"resource_type": 32, "resource_name": "ga"},
    {"resource_type": 32, "resource_name": "zg"},
]
_EVERY_ACL: Final = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
_GROUPS: Final = ("ga", "gaa", "zg", "absent")
_TXNS: Final = ("ga", "gax", "zt")
_SETTINGS: Final = {
    2: "retention.ms",
    4: "log.cleaner.threads",
    8: "root",
    16: "interval.ms",
    32: "consumer.session.timeout.ms",
}
_VALUES: Final = {2: "100000", 4: "1", 8: "INFO", 16: "100000", 32: "50000"}


def _altered(**more: Any) -> list[dict[str, Any]]:
    return [
        {**target, "configs": [{"name": _SETTINGS[kind], "value": _VALUES[kind], **more}]}
        for target in _CONFIG_TARGETS
        if (kind := target["resource_type"]) in (2, 4, 32)
    ]


REQUESTS: Final = (
    Asked("produce", "produce", 9, {"acks": 1, "timeout_ms": 1000, "topic_data": _named(
        partition_data=[{"index": 0, "records": _batch()}])}),
    Asked("produce by id", "produce", 13, {"acks": 1, "timeout_ms": 1000, "topic_data": _by_id(
        partition_data=[{"index": 0, "records": _batch()}])}),
    Asked("produce idempotently", "produce", 9, {"acks": -1, "timeout_ms": 1000, "topic_data": _named(
        partition_data=[{"index": 0, "records": _batch(77)}])}),
    *(Asked(f"produce {records} of {txn}", "produce", 9, {
        "transactional_id": txn, "acks": -1, "timeout_ms": 1000, "topic_data": _named(
            partition_data=[{"index": 5, "records": _batch(77, transactional=records == "transaction")}])})
      for txn in ("ga", "zt") for records in ("transaction", "other records")),
    Asked("fetch", "fetch", 11, {**_FETCH, "topics": [
        {"topic": name, "partitions": [_FETCHED]} for name in (*TOPICS, "absent")]}),
    Asked("fetch by id", "fetch", 17, {**_FETCH, "topics": _by_id(partitions=[_FETCHED])}),
    Asked("fetch as a follower", "fetch", 11, {**_FETCH, "replica_id": 7, "topics": [
        {"topic": name, "partitions": [_FETCHED]} for name in (*TOPICS, "absent")]}),
    Asked("fetch by id as a follower", "fetch", 17, {
        **_FETCH, "replica_state": {"replica_id": 7, "replica_epoch": 1}, "topics": _by_id(partitions=[_FETCHED])}),
    Asked("list offsets", "list_offsets", 7, {"replica_id": -1, "topics": _named(
        partitions=[{"partition_index": 0, "timestamp": -2}])}),
    Asked("list offsets as a follower", "list_offsets", 7, {"replica_id": 7, "topics": _named(
        partitions=[{"partition_index": 0, "timestamp": -2}])}),
    Asked("offset for leader epoch", "offset_for_leader_epoch", 4, {"replica_id": -1, "topics": [
        {"topic": name, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
        for name in (*TOPICS, "absent")]}),
    Asked("metadata of all", "metadata", 12, {"topics": None, "include_topic_authorized_operations": True}),
    Asked("metadata by name", "metadata", 9, {
        "topics": [{"name": name} for name in (*TOPICS, "absent")], "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}),
    Asked("metadata by id", "metadata", 12, {
        "topics": _by_id(name=None), "include_topic_authorized_operations": True}),
    Asked("metadata of none", "metadata", 8, {"topics": [], "include_cluster_authorized_operations": True}),
    Asked("describe topic partitions", "describe_topic_partitions", 0, {
        "topics": [], "response_partition_limit": 2000}),
    Asked("describe named partitions", "describe_topic_partitions", 0, {
        "topics": [{"name": name} for name in (*TOPICS, "absent")], "response_partition_limit": 2000}),
    Asked("describe from a hidden cursor", "describe_topic_partitions", 0, {
        "topics": [], "response_partition_limit": 1, "cursor": {"topic_name": "abz", "partition_index": 0}}),
    Asked("describe cluster", "describe_cluster", 2, {"include_cluster_authorized_operations": True}),
    Asked("describe cluster, not asking", "describe_cluster", 1, {}),
    Asked("list groups", "list_groups", 5, {}),
    Asked("describe groups", "describe_groups", 6, {"groups": [*_GROUPS], "include_authorized_operations": True}),
    Asked("describe groups, old", "describe_groups", 5, {"groups": [*_GROUPS], "include_authorized_operations": True}),
    Asked("describe consumer groups", "consumer_group_describe", 1, {
        "group_ids": ["gac", "zgc", "absent"], "include_authorized_operations": True}),
    *(Asked(f"find coordinator of {key_type}", "find_coordinator", 4, {
        "key_type": key_type, "coordinator_keys": ["ga", "zg"]}) for key_type in (0, 1)),
    *(Asked(f"find one coordinator of {key_type}", "find_coordinator", 3, {"key_type": key_type, "key": "ga"})
      for key_type in (0, 1)),
    *(Asked(f"join {group}", "join_group", 9, {
        "group_id": group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "nobody",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}) for group in ("ga", "zg")),
    *(Asked(f"sync {group}", "sync_group", 5, {"group_id": group, "member_id": "nobody", "generation_id": 1,
        "protocol_type": "consumer", "protocol_name": "range"}) for group in ("ga", "zg")),
    *(Asked(f"heartbeat {group}", "heartbeat", 4, {"group_id": group, "member_id": "nobody", "generation_id": 1})
      for group in ("ga", "zg")),
    *(Asked(f"leave {group}", "leave_group", 5, {"group_id": group, "members": [{"member_id": "nobody"}]})
      for group in ("ga", "zg")),
    *(Asked(f"consumer heartbeat {group}", "consumer_group_heartbeat", 1, {
        "group_id": group, "member_id": "nobody", "member_epoch": 5, "rebalance_timeout_ms": 5000,
        "subscribed_topic_names": names, "topic_partitions": []})
      for group, names in (("gac", ["ab"]), ("zgc", ["ab"]), ("gac", ["zz", "ab"]))),
    *(Asked(f"commit {group}", "offset_commit", 9, {
        "group_id": group, "generation_id_or_member_epoch": -1, "topics": _named(
            partitions=[{"partition_index": 0, "committed_offset": 1}])}) for group in ("ga", "zg")),
    Asked("commit by id", "offset_commit", 10, {
        "group_id": "ga", "generation_id_or_member_epoch": -1, "topics": _by_id(
            partitions=[{"partition_index": 0, "committed_offset": 1}])}),
    *(Asked(f"fetch offsets of {group}", "offset_fetch", 7, {
        "group_id": group, "topics": _named(partition_indexes=[0])})
      for group in ("ga", "zg")),
    *(Asked(f"fetch all offsets of {group}", "offset_fetch", 7, {"group_id": group, "topics": None})
      for group in ("ga", "zg")),
    Asked("fetch offsets of several", "offset_fetch", 9, {"groups": [
        {"group_id": "ga", "topics": _named(partition_indexes=[0])}, {"group_id": "ga", "topics": None},
        {"group_id": "zg", "topics": None}]}),
    Asked("fetch offsets by id", "offset_fetch", 10, {"groups": [
        {"group_id": "ga", "topics": _by_id(partition_indexes=[0])}, {"group_id": "zg", "topics": None}]}),
    Asked("fetch all offsets by id", "offset_fetch", 10, {"groups": [{"group_id": "ga", "topics": None}]}),
    *(Asked(f"delete offsets of {group}", "offset_delete", 0, {"group_id": group, "topics": [
        {"name": name, "partitions": [{"partition_index": 3}]} for name in (*TOPICS, "absent")]})
      for group in ("ga", "zg")),
    Asked("delete groups", "delete_groups", 2, {"groups_names": ["gaa", "zgl", "absent"]}),
    Asked("initialize a producer", "init_producer_id", 4, {"transactional_id": None, "transaction_timeout_ms": 1000}),
    *(Asked(f"initialize {txn}", "init_producer_id", 4, {"transactional_id": txn, "transaction_timeout_ms": 1000})
      for txn in ("ga", "zt")),
    *(Asked(f"add partitions to {txn}", "add_partitions_to_txn", 3, {
        "v3_and_below_transactional_id": txn, "v3_and_below_producer_id": 999, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in names]})
      for txn, names in (("ga", ("ab",)), ("ga", ("ab", "zz")), ("ga", ("ab", "absent")), ("zt", ("ab",)))),
    Asked("add partitions as a broker", "add_partitions_to_txn", 5, {"transactions": [
        {"transactional_id": "ga", "producer_id": 999, "producer_epoch": 0, "verify_only": True,
         "topics": [{"name": "ab", "partitions": [0]}]}]}),
    *(Asked(f"add {group} to {txn}", "add_offsets_to_txn", 3, {
        "transactional_id": txn, "producer_id": 999, "producer_epoch": 0, "group_id": group})
      for txn, group in (("ga", "ga"), ("ga", "zg"), ("zt", "ga"))),
    *(Asked(f"end {txn}", "end_txn", 3, {
        "transactional_id": txn, "producer_id": 999, "producer_epoch": 0, "committed": True}) for txn in ("ga", "zt")),
    *(Asked(f"commit {group} in {txn}", "txn_offset_commit", 3, {
        "transactional_id": txn, "group_id": group, "producer_id": 999, "producer_epoch": 0, "generation_id": 5,
        "member_id": "nobody",
        "topics": _named(partitions=[{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}])})
      for txn, group in (("ga", "ga"), ("ga", "zg"), ("zt", "ga"))),
    Asked("write markers", "write_txn_markers", 1, {"markers": [
        {"producer_id": 999, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0,
         "topics": [{"name": "ab", "partition_indexes": [7]}]}]}),
    Asked("list transactions", "list_transactions", 1, {"duration_filter": -1}),
    Asked("describe transactions", "describe_transactions", 0, {"transactional_ids": [*_TXNS, "absent"]}),
    Asked("describe producers", "describe_producers", 0, {"topics": _named(partition_indexes=[0])}),
    Asked("describe configs", "describe_configs", 4, {"resources": [
        {**one, "configuration_keys": [_SETTINGS[one["resource_type"]]]} for one in _CONFIG_TARGETS]}),
    Asked("alter configs", "alter_configs", 2, {"resources": _altered(), "validate_only": True}),
    Asked("alter configs incrementally", "incremental_alter_configs", 1, {
        "resources": _altered(config_operation=0), "validate_only": True}),
    *(Asked(f"list resources {kinds}", "list_config_resources", 1, {"resource_types": kinds})
      for kinds in ([], [2], [16])),
    Asked("list metrics resources", "list_config_resources", 0, {}),
    Asked("create topics", "create_topics", 7, {"validate_only": True, "timeout_ms": 5000, "topics": [
        {"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("ab", "abnew", "znew", "in!valid")]}),
    Asked("create partitions", "create_partitions", 3, {"validate_only": True, "timeout_ms": 5000, "topics": [
        {"name": name, "count": 9, "assignments": None} for name in (*TOPICS, "absent")]}),
    Asked("delete records", "delete_records", 2, {"timeout_ms": 5000, "topics": _named(
        partitions=[{"partition_index": 0, "offset": 0}])}),
    Asked("describe log dirs", "describe_log_dirs", 4, {"topics": [{"topic": "ab", "partitions": [0]}]}),
    Asked("alter log dirs", "alter_replica_log_dirs", 2, {"dirs": [
        {"path": "/nowhere", "topics": [{"name": name, "partitions": [0]} for name in ("ab", "absent")]}]}),
    Asked("elect leaders", "elect_leaders", 2, {"election_type": 0, "timeout_ms": 5000, "topic_partitions": [
        {"topic": name, "partitions": [0]} for name in ("ab", "absent")]}),
    Asked("reassign", "alter_partition_reassignments", 0, {"timeout_ms": 5000, "topics": [
        {"name": name, "partitions": [{"partition_index": 0, "replicas": None}]} for name in ("ab", "absent")]}),
    Asked("list reassignments", "list_partition_reassignments", 0, {"timeout_ms": 5000, "topics": None}),
    Asked("describe acls", "describe_acls", 3, {
        **_EVERY_ACL, "principal_filter": "User:user1"}),
    Asked("create acls", "create_acls", 3, {"creations": [
        {"resource_type": 2, "resource_name": "", "resource_pattern_type": 3, "principal": "User:x", "host": "*",
         "operation": 3, "permission_type": 3}]}),
    Asked("delete acls", "delete_acls", 3, {"filters": [
        {**_EVERY_ACL, "principal_filter": "User:absent"}]}),
    Asked("describe users", "describe_user_scram_credentials", 0, {"users": []}),
    Asked("alter users", "alter_user_scram_credentials", 0, {"deletions": [{"name": "absent", "mechanism": 1}]}),
    Asked("describe quotas", "describe_client_quotas", 1, {"components": [], "strict": False}),
    Asked("alter quotas", "alter_client_quotas", 1, {"validate_only": True, "entries": [
        {"entity": [{"entity_type": "user", "entity_name": "x"}],
         "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]}]}),
    Asked("describe quorum", "describe_quorum", 1, {"topics": [
        {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
    Asked("update features", "update_features", 2, {"validate_only": True, "timeout_ms": 5000, "feature_updates": [
        {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}]}),
    Asked("unregister", "unregister_broker", 0, {"broker_id": 99}),
    Asked("add a voter", "add_raft_voter", 0, {"cluster_id": "other", "timeout_ms": 1000, "voter_id": 9,
        "voter_directory_id": _UNKNOWN, "listeners": [{"name": "CONTROLLER", "host": "h", "port": 9}]}),
    Asked("remove a voter", "remove_raft_voter", 0, {
        "cluster_id": "other", "voter_id": 9, "voter_directory_id": _UNKNOWN}),
    # Last, because they change the results of the user's other requests.
    Asked("metadata by name, creating", "metadata", 9, {
        "topics": [{"name": name} for name in ("dN-u", "in!valid")], "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": True}),
    Asked("delete topics", "delete_topics", 5, {"timeout_ms": 5000, "topic_names": ["dN-t", "zz-absent"]}),
    Asked("delete topics by id", "delete_topics", 6, {"timeout_ms": 5000, "topics": [
        {"name": None, "topic_id": "id:dN-v"}, {"name": None, "topic_id": "id:unknown"}, {"name": "absent"}]}),
)  # fmt: skip
"""The requests to a broker."""

_QUORUM: Final = {"topic_name": "__cluster_metadata"}
_STALE: Final = {"broker_id": 1, "broker_epoch": 99_999_999}

CONTROLLER_REQUESTS: Final = (
    Asked("fetch metadata", "fetch", 17, {**_FETCH, "cluster_id": "other", "topics": [
        {"topic_id": UUID(int=1), "partitions": [_FETCHED]}]}),
    Asked("vote", "vote", 1, {"cluster_id": "other", "voter_id": 9, "topics": [
        {**_QUORUM, "partitions": [{"partition_index": 0, "replica_epoch": 1, "replica_id": 9}]}]}),
    Asked("begin epoch", "begin_quorum_epoch", 1, {"cluster_id": "other", "voter_id": 9, "topics": [
        {**_QUORUM, "partitions": [{"partition_index": 0, "leader_id": 9, "leader_epoch": 1}]}]}),
    Asked("end epoch", "end_quorum_epoch", 1, {"cluster_id": "other", "topics": [
        {**_QUORUM, "partitions": [{"partition_index": 0, "leader_id": 9, "leader_epoch": 1}]}]}),
    Asked("fetch snapshot", "fetch_snapshot", 0, {"cluster_id": "other", "replica_id": 9, "max_bytes": 1000, "topics": [
        {"name": "__cluster_metadata", "partitions": [
            {"partition": 0, "snapshot_id": {"end_offset": 1, "epoch": 1}}]}]}),
    Asked("alter partition", "alter_partition", 3, {**_STALE, "topics": [
        {"topic_id": _UNKNOWN, "partitions": [{"partition_index": 0, "new_isr_with_epochs": []}]}]}),
    Asked("register a broker", "broker_registration", 4, {"broker_id": 99, "cluster_id": "other"}),
    Asked("heartbeat of a broker", "broker_heartbeat", 1, _STALE),
    Asked("allocate ids", "allocate_producer_ids", 0, _STALE),
    Asked("assign directories", "assign_replicas_to_dirs", 0, {**_STALE, "directories": []}),
    Asked("update a voter", "update_raft_voter", 0, {
        "cluster_id": "other", "current_leader_epoch": 1, "voter_id": 9, "voter_directory_id": _UNKNOWN,
        "listeners": [{"name": "CONTROLLER", "host": "h", "port": 9}],
        "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1}}),
    Asked("envelope", "envelope", 0, {
        "request_data": b"", "request_principal": b"", "client_host_address": b"\x7f\0\0\1"}),
    *(one for one in REQUESTS if one.api in {
        "create_topics", "create_partitions", "describe_acls", "create_acls", "delete_acls", "alter_configs",
        "incremental_alter_configs", "elect_leaders", "alter_partition_reassignments", "list_partition_reassignments",
        "alter_client_quotas", "describe_quorum", "update_features", "unregister_broker", "add_raft_voter",
        "remove_raft_voter", "alter_user_scram_credentials", "delete_topics",
    }),
    Asked("describe controllers", "describe_cluster", 1, {
        "include_cluster_authorized_operations": True, "endpoint_type": 2}),
    Asked("describe configs", "describe_configs", 4, {"resources": [
        {**one, "configuration_keys": [_SETTINGS[one["resource_type"]]]} for one in _CONFIG_TARGETS[:5]]}),
)  # fmt: skip
"""The requests to a controller's listener."""


class User:
    """A connection to a broker in the name of a user; made again after the broker has closed it."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._asker, self._name, self._logged_in = Asker(bootstrap), name, False

    async def call(self, api: str, values: Mapping[str, Any], version: int) -> Any:
        """Send a request; return the response, None if the broker closes the connection."""
        if not self._logged_in:
            await self._log_in()
        with trio.fail_after(_PATIENCE):
            answer = await self._asker.call(request(api, values), version)
        self._logged_in = answer is not None
        return answer

    async def _log_in(self) -> None:
        for asked, version in (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=f"\0{self._name}\0{PASSWORD}".encode()), 1),
        ):
            answer = await self._asker.call(asked, version)
            assert answer is not None and answer.error_code == 0, (self._name, answer)

    async def until_done(self, api: str, version: int, values: Mapping[str, Any]) -> Any:
        """Repeat a request until the response has no error: brokers learn of new topics and coordinators late."""
        answer = None
        with trio.move_on_after(_PATIENCE):
            while answer is None or any(_codes(answer)):
                answer = await self.call(api, values, version)
                if not any(_codes(answer)):
                    return answer
                await trio.sleep(0.1)
        raise AssertionError(f"{api}: {answer}")

    def close(self) -> None:
        """Close the connection."""
        self._asker.close()


def _codes(struct: Any) -> Iterator[int]:
    for field in type(struct).__fields__:
        value = getattr(struct, field.name)
        if field.name.endswith("error_code"):
            yield value
        for item in value if isinstance(value, list) else ():
            if isinstance(item, Struct):
                yield from _codes(item)


async def prepare(bootstrap: str, all_scenarios: Sequence[Scenario]) -> dict[str, UUID]:
    """Create topics, groups, transactional ids, and the ACLs of all scenarios; return the topics' ids."""
    admin = User(bootstrap, ADMIN)
    names = [*TOPICS, *(f"d{one.number}-{letter}" for one in all_scenarios for letter in "tv")]
    made = await admin.call(
        "create_topics",
        {
            "topics": [
                {
                    "name": name,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "configs": [{"name": "retention.ms", "value": "-1"}],
                }
                for name in names
            ],
            "timeout_ms": 30_000,
        },
        7,
    )
    assert not any(_codes(made)), made
    records = [{"name": name, "partition_data": [{"index": 0, "records": _batch()}]} for name in TOPICS]
    await admin.until_done("produce", 9, {"acks": -1, "timeout_ms": 10_000, "topic_data": records})
    await admin.until_done("find_coordinator", 4, {"coordinator_keys": ["ga", "zg", "gaa", "zgl", "gac", "zgc"]})
    offsets = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for name in TOPICS]
    for group in ("ga", "zg"):
        commit = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": offsets}
        await admin.until_done("offset_commit", 9, commit)
    for group in ("gaa", "zgl"):
        await _join(admin, group)
    for group, subscribed in (("gac", ["ab"]), ("zgc", ["ab", "zz"])):
        beat = {
            "group_id": group, "member_id": f"{group}-member", "member_epoch": 0, "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": subscribed, "topic_partitions": [],
        }  # fmt: skip
        await admin.until_done("consumer_group_heartbeat", 1, beat)
    await admin.until_done("find_coordinator", 4, {"key_type": 1, "coordinator_keys": [*_TXNS]})
    for txn in _TXNS:
        found = await admin.until_done(
            "init_producer_id", 4, {"transactional_id": txn, "transaction_timeout_ms": 600_000}
        )
        if txn == "gax":
            added = {
                "v3_and_below_transactional_id": txn, "v3_and_below_producer_id": found.producer_id,
                "v3_and_below_producer_epoch": found.producer_epoch,
                "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in TOPICS],
            }  # fmt: skip
            await admin.until_done("add_partitions_to_txn", 3, added)
    upsertion = {"name": "shown", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16, "salted_password": b"p" * 32}
    await admin.until_done("alter_user_scram_credentials", 0, {"upsertions": [upsertion]})
    quota = {
        "entity": [{"entity_type": "user", "entity_name": "shown"}],
        "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
    }
    await admin.until_done("alter_client_quotas", 1, {"entries": [quota]})
    wanted = [acl for one in all_scenarios for acl in acls(one)]
    await admin.until_done("create_acls", 3, {"creations": wanted})
    await _until_known(admin, wanted)
    admin.close()
    return {topic.name: topic.topic_id for topic in made.topics}


async def _until_known(admin: User, wanted: Sequence[Mapping[str, Any]]) -> None:
    while True:
        described = await admin.call("describe_acls", _EVERY_ACL, 3)
        if sum(len(resource.acls) for resource in described.resources) == len(wanted):
            return
        await trio.sleep(0.1)


async def _join(admin: User, group: str) -> None:
    join = {
        "group_id": group, "session_timeout_ms": 1_000_000, "rebalance_timeout_ms": 1_000_000, "member_id": "",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip
    member = (await admin.until_done("join_group", 3, join)).member_id
    sync = {
        "group_id": group, "generation_id": 1, "member_id": member,
        "assignments": [{"member_id": member, "assignment": b"a"}],
    }  # fmt: skip
    await admin.until_done("sync_group", 2, sync)


async def answers(
    bootstrap: str, all_scenarios: Sequence[Scenario], asked: Sequence[Asked], ids: Mapping[str, UUID]
) -> dict[tuple[str, str], str]:
    """Send all requests in the name of each user; return the reduced responses by request and scenario."""
    names = {topic_id: name for name, topic_id in ids.items()} | {_ZERO: "", _UNKNOWN: "unknown"}
    found: dict[tuple[str, str], str] = {}
    for scenario in all_scenarios:
        user = User(bootstrap, scenario.user)
        known = {**ids, "unknown": _UNKNOWN, "dN-v": ids[f"d{scenario.number}-v"]}
        for one in asked:
            values = _filled(one.values, known, scenario.number)
            answer = await user.call(one.api, values, one.version)
            summary = "closed" if answer is None else repr(_reduced(answer, names, f"d{scenario.number}-"))
            found[one.case, scenario.name] = summary
        user.close()
    return found


def _filled(value: Any, ids: Mapping[str, UUID], number: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(item, ids, number) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, ids, number) for item in value]
    if isinstance(value, str) and value.startswith("id:"):
        return ids[value.removeprefix("id:")]
    return value.replace("dN-", f"d{number}-") if isinstance(value, str) else value


_LEFT_OUT: Final = {
    "throttle_time_ms", "error_message", "brokers", "node_endpoints", "cluster_id", "controller_id", "host", "port",
    "configs", "member_id", "member_epoch", "log_append_time_ms", "timestamp", "size", "total_bytes", "usable_bytes",
    "aborted_transactions", "partition_size", "is_cordoned", "log_dir", "leader_epoch", "partition_epoch", "epoch",
    "group_epoch",
    "assignment_epoch",
    "broker_id", "salt", "active_producers", "nodes", "current_voters", "observers", "high_watermark", "offset_lag",
    "transaction_start_time_ms", "assignor_name", "target_assignment", "session_id", "diverging_epoch",
}  # fmt: skip
_SIGNS: Final = {
    "base_offset", "log_start_offset", "last_stable_offset", "end_offset", "producer_id", "producer_epoch", "offset",
    "low_watermark", "transaction_timeout_ms", "leader_id", "node_id", "generation_id",
}  # fmt: skip


def _reduced(value: Any, topics: Mapping[UUID, str], own: str) -> Any:
    """Return error codes and names of a response; lists as sets, because brokers order by hashes."""
    if isinstance(value, Struct):
        reduced: dict[str, Any] = {}
        for field in type(value).__fields__:
            name, item = field.name, getattr(value, field.name)
            if name == "configs" and item is not None:
                reduced[name] = bool(item)
            if name in _LEFT_OUT:
                continue
            reduced[name] = (
                (item > 0) - (item < 0) if name in _SIGNS and item is not None else _reduced(item, topics, own)
            )
        return reduced
    if isinstance(value, list):
        return sorted({repr(_reduced(item, topics, own)) for item in value if not _is_foreign(item, topics, own)})
    if isinstance(value, UUID):
        return topics.get(value, "other").replace(own, "own-")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "data" if len(value) else "none"
    return value.replace(own, "own-") if isinstance(value, str) else value


def _is_foreign(item: Any, topics: Mapping[UUID, str], own: str) -> bool:
    """Whether this is a topic of another user, or one that only one of the brokers has."""
    if not isinstance(item, Struct):
        return False
    name = (
        getattr(item, "name", None) or getattr(item, "resource_name", None) or getattr(item, "topic_name", None) or ""
    )
    return isinstance(name, str) and (
        (name.startswith("d") and name[1:2].isdigit() and not name.startswith(own)) or name.startswith("__")
    )
