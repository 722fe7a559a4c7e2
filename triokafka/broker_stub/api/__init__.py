"""One module per API that this broker serves, named as in ``protocol/api``; `MODULES` is the whole list.

Transactions (AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit) are not served, so ApiVersions does not name
them.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from triokafka.broker_stub.handlers import Handler

MODULES: Final = (
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_fetch",
    "find_coordinator",
    "join_group",
    "heartbeat",
    "leave_group",
    "sync_group",
    "describe_groups",
    "list_groups",
    "api_versions",
    "create_topics",
    "delete_topics",
    "delete_records",
    "init_producer_id",
    "offset_for_leader_epoch",
    "describe_configs",
    "alter_configs",
    "create_partitions",
    "delete_groups",
    "incremental_alter_configs",
    "offset_delete",
    "describe_client_quotas",
    "alter_client_quotas",
    "describe_cluster",
    "describe_topic_partitions",
    "describe_acls",
    "create_acls",
    "delete_acls",
    "alter_replica_log_dirs",
    "describe_log_dirs",
    "elect_leaders",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "describe_quorum",
    "update_features",
    "describe_producers",
    "unregister_broker",
    "list_transactions",
    "describe_transactions",
    "list_config_resources",
    "consumer_group_heartbeat",
    "consumer_group_describe",
)


def load_handlers() -> dict[int, Handler[Any, Any]]:
    """Every handler by API key."""
    handlers: dict[int, Handler[Any, Any]] = {}
    for name in MODULES:
        module = importlib.import_module(f"{__name__}.{name}")
        for handler in vars(module).values():
            if isinstance(handler, Handler):
                handlers[handler.api_key] = handler
    return handlers
