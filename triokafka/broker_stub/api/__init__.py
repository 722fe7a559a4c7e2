"""One module per API that this broker serves, named as in ``protocol/api``; `MODULES` is the whole list."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from triokafka.broker_stub.request.registry import Handler

MODULES: Final = {
    "produce": (0, 0, 13),
    "fetch": (1, 4, 18),
    "list_offsets": (2, 1, 11),
    "metadata": (3, 0, 13),
    "offset_commit": (8, 2, 10),
    "offset_fetch": (9, 1, 10),
    "find_coordinator": (10, 0, 6),
    "join_group": (11, 0, 9),
    "heartbeat": (12, 0, 4),
    "leave_group": (13, 0, 5),
    "sync_group": (14, 0, 5),
    "describe_groups": (15, 0, 6),
    "list_groups": (16, 0, 5),
    "sasl_handshake": (17, 0, 1),
    "api_versions": (18, 0, 4),
    "create_topics": (19, 2, 7),
    "delete_topics": (20, 1, 6),
    "delete_records": (21, 0, 2),
    "init_producer_id": (22, 0, 5),
    "offset_for_leader_epoch": (23, 2, 4),
    "add_partitions_to_txn": (24, 0, 5),
    "add_offsets_to_txn": (25, 0, 4),
    "end_txn": (26, 0, 5),
    "write_txn_markers": (27, 1, 2),
    "txn_offset_commit": (28, 0, 5),
    "describe_configs": (32, 1, 4),
    "alter_configs": (33, 0, 2),
    "create_partitions": (37, 0, 3),
    "delete_groups": (42, 0, 2),
    "incremental_alter_configs": (44, 0, 1),
    "offset_delete": (47, 0, 0),
    "describe_client_quotas": (48, 0, 1),
    "alter_client_quotas": (49, 0, 1),
    "describe_user_scram_credentials": (50, 0, 0),
    "alter_user_scram_credentials": (51, 0, 0),
    "describe_cluster": (60, 0, 2),
    "describe_topic_partitions": (75, 0, 0),
    "describe_acls": (29, 1, 3),
    "create_acls": (30, 1, 3),
    "delete_acls": (31, 1, 3),
    "alter_replica_log_dirs": (34, 1, 2),
    "describe_log_dirs": (35, 1, 5),
    "sasl_authenticate": (36, 0, 2),
    "create_delegation_token": (38, 1, 3),
    "renew_delegation_token": (39, 1, 2),
    "expire_delegation_token": (40, 1, 2),
    "describe_delegation_token": (41, 1, 3),
    "elect_leaders": (43, 0, 2),
    "alter_partition_reassignments": (45, 0, 1),
    "list_partition_reassignments": (46, 0, 0),
    "describe_quorum": (55, 0, 2),
    "update_features": (57, 0, 2),
    "describe_producers": (61, 0, 0),
    "unregister_broker": (64, 0, 0),
    "list_transactions": (66, 0, 2),
    "describe_transactions": (65, 0, 0),
    "list_config_resources": (74, 0, 1),
    "get_telemetry_subscriptions": (71, 0, 0),
    "push_telemetry": (72, 0, 0),
    "consumer_group_heartbeat": (68, 0, 1),
    "consumer_group_describe": (69, 0, 1),
    "add_raft_voter": (80, 0, 1),
    "remove_raft_voter": (81, 0, 0),
}
"""API key, first and last version in ApiVersions by module name; equal to the versions of the module's handler."""

CONTROLLER_MODULES: Final = {
    **{
        name: MODULES[name]
        for name in (
            "sasl_handshake", "api_versions", "create_topics", "delete_topics", "describe_acls", "create_acls",
            "delete_acls", "describe_configs", "alter_configs", "sasl_authenticate", "create_partitions",
            "elect_leaders", "incremental_alter_configs", "alter_partition_reassignments",
            "list_partition_reassignments", "alter_client_quotas", "describe_quorum", "update_features",
            "describe_cluster", "unregister_broker", "add_raft_voter", "remove_raft_voter",
            "alter_user_scram_credentials", "create_delegation_token", "renew_delegation_token",
            "expire_delegation_token",
        )
    },
    "quorum_fetch": (1, 4, 18),
    "vote": (52, 0, 2),
    "begin_quorum_epoch": (53, 0, 1),
    "end_quorum_epoch": (54, 0, 1),
    "alter_partition": (56, 2, 3),
    "envelope": (58, 0, 0),
    "fetch_snapshot": (59, 0, 1),
    "broker_registration": (62, 0, 4),
    "broker_heartbeat": (63, 0, 2),
    "allocate_producer_ids": (67, 0, 0),
    "controller_registration": (70, 0, 0),
    "assign_replicas_to_dirs": (73, 0, 0),
    "update_raft_voter": (82, 0, 0),
}  # fmt: skip
"""The same of the APIs on a controller's listeners. Administrative requests have the same handlers there (KIP-919)."""


class Handlers(Mapping[int, Handler[Any, Any]]):
    """The handlers by API key. Each handler's module is imported on first use, which shortens the broker's start.

    Args:
        modules: `MODULES` for a broker's listeners, `CONTROLLER_MODULES` for a controller's.
    """

    def __init__(self, modules: Mapping[str, tuple[int, int, int]] = MODULES) -> None:
        self._modules = {key: name for name, (key, _, _) in modules.items()}
        self._loaded: dict[int, Handler[Any, Any]] = {}
        self.advertised = {key: range(first, last + 1) for key, first, last in modules.values()}
        """The versions in ApiVersions by API key. Reading it imports no handler."""

    def __getitem__(self, key: int) -> Handler[Any, Any]:
        handler = self._loaded.get(key)
        if handler is None:
            module = importlib.import_module(f"{__name__}.{self._modules[key]}")
            handler = next(found for found in vars(module).values() if isinstance(found, Handler))
            self._loaded[key] = handler
        return handler

    def __iter__(self) -> Iterator[int]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)
