"""The group coordinator's requests for offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.group.append_errors import coordinator_error, offsets_append_error
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.group_shards import GroupShards, check_group_id
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.group.topics_view import TopicFilter, any_topic
from triokafka.coordinator.offsets import commit as commits
from triokafka.coordinator.offsets import delete as deletes
from triokafka.coordinator.offsets import fetch as fetches
from triokafka.coordinator.runtime.coordinator_log import TransactionalProducer
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.waiting import answer_to, checkpoint, run_steps
from triokafka.errors import KafkaError
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from triokafka.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

_GROUPS_AT_ONCE: Final = 100


async def store_offsets(
    shards: GroupShards,
    request: OffsetCommitRequest,
    known: list[tuple[OffsetCommitRequestTopic, OffsetCommitResponseTopic]],
    response: OffsetCommitResponse,
    *,
    version: int,
    topics_at: int,
    producer: TransactionalProducer | None = None,
) -> OffsetCommitResponse:
    """Store the offsets that `commits.resolve_topics` found, and wait until they are committed.

    Args:
        topics_at: the version of the topics at which ``known`` was looked up.
        producer: the offsets become part of its transaction.

    Raises:
        KafkaError: the offsets were not stored.
    """
    prepared = await run_steps(
        commits.prepare(
            request,
            known,
            metadata_max_bytes=shards.config.offset_metadata_max_bytes,
            now_ms=shards.world.wall_ms(),
        )
    )
    if shards.topics.version != topics_at:
        commits.leave_out_deleted(prepared, version, shards.topics)
    reply: Reply[OffsetCommitResponse] = Reply()
    return await shards.ask(
        request.group_id,
        lambda shard, effects: commits.commit(
            shard, request, known, prepared, response, reply, version=version, effects=effects, producer=producer
        ),
        reply,
    )


class OffsetRequests:
    """The requests for committed offsets, one method per API."""

    def __init__(self, shards: GroupShards) -> None:
        self._shards = shards
        self._topics = shards.topics

    async def commit_offsets(
        self, request: OffsetCommitRequest, *, version: int, may_read: TopicFilter = any_topic
    ) -> OffsetCommitResponse:
        """Handle OffsetCommit. Waits until the offsets are committed, at most ``offset_commit_timeout_ms``.

        The offsets are stored in one batch, all or none. A very large request yields to other tasks while its topics
        are looked up and while it prepares the batch.
        """
        topics_at = self._topics.version
        known, response = await run_steps(commits.resolve_topics(request, version, self._topics, may_read))
        if not known:
            return response
        try:
            return await store_offsets(self._shards, request, known, response, version=version, topics_at=topics_at)
        except KafkaError as error:
            return commits.commit_failed(request, offsets_append_error(error))

    async def fetch_offsets(
        self, request: OffsetFetchRequest, *, version: int, may_describe: TopicFilter = any_topic
    ) -> OffsetFetchResponse:
        """Handle OffsetFetch for one group or several. Returns committed offsets only and does not wait. With very many
        offsets it yields to other tasks in between.

        With ``require_stable`` (KIP-447) it waits until the newest offsets are committed.
        """
        asked_groups = fetches.asked_groups(request, version)
        if request.require_stable:
            pending = []
            for asked in asked_groups:
                pending.append(self._start_stable_fetch(asked, version, may_describe))
                if not len(pending) % _GROUPS_AT_ONCE:
                    await checkpoint()
        groups = []
        for number, asked in enumerate(asked_groups):
            if request.require_stable:
                groups.append(await self._settled(asked, pending[number]))
            else:
                groups.append(await self._fetch_group(asked, version, may_describe))
            if not len(groups) % _GROUPS_AT_ONCE:
                await checkpoint()
        return fetches.as_response(request, groups, version)

    def _start_stable_fetch(
        self, asked: OffsetFetchRequestGroup, version: int, may_describe: TopicFilter
    ) -> Reply[fetches.FetchSteps]:
        reply: Reply[fetches.FetchSteps] = Reply()

        def fetch(shard: GroupShard, effects: GroupEffects) -> None:
            found = fetches.fetch_group(shard, asked, version, self._topics, may_describe, stable=True)
            effects.answer(reply, found)

        try:
            self._shards.begin(asked.group_id, fetch)
        except KafkaError as error:
            reply.fail(error)
        return reply

    @staticmethod
    async def _settled(asked: OffsetFetchRequestGroup, reply: Reply[fetches.FetchSteps]) -> OffsetFetchResponseGroup:
        try:
            return await run_steps(await answer_to(reply))
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=coordinator_error(error))

    async def _fetch_group(
        self, asked: OffsetFetchRequestGroup, version: int, may_describe: TopicFilter
    ) -> OffsetFetchResponseGroup:
        try:
            steps = self._shards.read(
                asked.group_id,
                lambda shard: fetches.fetch_group(shard, asked, version, self._topics, may_describe),
            )
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=coordinator_error(error))
        return await run_steps(steps)

    async def delete_offsets(
        self, request: OffsetDeleteRequest, *, may_read: TopicFilter = any_topic
    ) -> OffsetDeleteResponse:
        """Handle OffsetDelete. Waits until the removal is committed."""
        try:
            check_group_id(request.group_id)
            reply: Reply[OffsetDeleteResponse] = Reply()
            return await self._shards.ask(
                request.group_id,
                lambda shard, effects: deletes.delete_offsets(shard, request, reply, self._topics, effects, may_read),
                reply,
            )
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=coordinator_error(error))
