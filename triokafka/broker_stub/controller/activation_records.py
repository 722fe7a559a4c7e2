"""The first records of a controller that becomes active, and the first records of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.broker_stub.metadata.features import ELIGIBLE_LEADER_REPLICAS, INITIAL_LEVELS, MIN_INSYNC_REPLICAS
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.protocol.message import Struct
from triokafka.protocol.stored import cluster_metadata as stored


def initial_records(min_insync_replicas: str = "1") -> list[Struct]:
    """Return the first records of a new metadata log: the feature levels, and the records for eligible leader
    replicas.
    """
    levels = [stored.FeatureLevelRecord(name=name, feature_level=level) for name, level in INITIAL_LEVELS.items()]
    return [*levels, cluster_min_insync_replicas(min_insync_replicas)]


def activation_records(
    image: MetadataImage,
    bootstrap_records: Sequence[Struct],
    min_insync_replicas: str,
    *,
    in_transaction: bool,
) -> list[Struct]:
    """Return the first records of a controller that has become active.

    It aborts a metadata transaction that an earlier one left unfinished. The first controller of a cluster also appends
    the cluster's first records, in one transaction (KIP-868): those of ``bootstrap.checkpoint``, or else
    `initial_records`.
    """
    records: list[Struct] = (
        [stored.AbortTransactionRecord(reason="the controller has changed")] if in_transaction else []
    )
    if image.features:
        return records
    first = list(bootstrap_records) or initial_records(min_insync_replicas)
    levels = {record.name: record.feature_level for record in first if isinstance(record, stored.FeatureLevelRecord)}
    has_value = any(isinstance(record, stored.ConfigRecord) and record.name == MIN_INSYNC_REPLICAS for record in first)
    if levels.get(ELIGIBLE_LEADER_REPLICAS) and not has_value:
        first.append(cluster_min_insync_replicas(min_insync_replicas))
    return [*records, stored.BeginTransactionRecord(name="Bootstrap records"), *first, stored.EndTransactionRecord()]


def cluster_min_insync_replicas(value: str) -> stored.ConfigRecord:
    """Return the record of the cluster-wide ``min.insync.replicas``."""
    return stored.ConfigRecord(
        resource_type=ConfigResourceType.BROKER, resource_name="", name=MIN_INSYNC_REPLICAS, value=value
    )
