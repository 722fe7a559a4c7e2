"""Whether the source and the target are one cluster."""

from __future__ import annotations

from triokafka.mirror.cluster_side import ClusterSide


async def are_one_cluster(source: ClusterSide, target: ClusterSide) -> bool:
    """Whether both sides have the same cluster id, and a broker's address or a topic's id in common.

    The cluster id alone does not tell: containers of one image often share it. Addresses alone do not tell either,
    because a broker has one for each listener.

    Raises:
        KafkaError: one of the clusters did not answer.
    """
    first, second = await target.admin.describe_cluster(), await source.admin.describe_cluster()
    if first.cluster_id != second.cluster_id:
        return False
    if {(node.host, node.port) for node in first.nodes} & {(node.host, node.port) for node in second.nodes}:
        return True
    # Brokers before 2.8 have no topic ids.
    ids = {topic.topic_id for topic in await source.admin.list_topics() if topic.topic_id.int}
    return any(topic.topic_id in ids for topic in await target.admin.list_topics())
