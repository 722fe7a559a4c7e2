"""Injecting armed faults into requests and responses.

Faults of whole requests delay or close the connection, or damage the response. Faults of a topic, a partition or a
group apply in APIs whose handlers do not check each item for faults: in APIs that change state, `FaultyItems` removes
the faulty items from the request, so that the handler does not execute them, and adds error results to the response. In
all other APIs it replaces the faulty items in the response. The handler processes the remaining items normally.
"""

from __future__ import annotations

from typing import Any, Final

import trio

from triokafka.broker_stub.faults.faults import INJECTED, Fault, Faults, RequestFault
from triokafka.broker_stub.request.answer import Answer
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import CloseConnectionError, Handler
from triokafka.protocol.message import Response
from triokafka.world import FileSlice

_CHANGING: Final = frozenset((8, 19, 20, 21, 33, 37, 42, 44))
"""OffsetCommit, CreateTopics, DeleteTopics, DeleteRecords, AlterConfigs, CreatePartitions, DeleteGroups,
IncrementalAlterConfigs."""
_TOPIC_FIELDS: Final = ("name", "topic", "topic_name", "resource_name")
_GROUP_FIELDS: Final = ("group_id", "key")
_PARTITION_FIELDS: Final = ("partition_index", "partition", "partition_id", "index")
_IDENTITY: Final = (*_TOPIC_FIELDS, *_GROUP_FIELDS, *_PARTITION_FIELDS, "topic_id", "resource_type")
_TOPIC_RESOURCE: Final = 2


async def before_handler(fault: RequestFault, context: RequestContext) -> None:
    """Apply a fault before its request is executed. Raises `CloseConnectionError`."""
    if fault.delay_ms:
        context.yield_slot()
        await trio.sleep(fault.delay_ms / 1000)
    if fault.close == "before":
        raise CloseConnectionError("a fault was injected: the connection was closed before the request was executed")


def after_handler(fault: RequestFault, context: RequestContext) -> None:
    """Apply a fault before the response is encoded. Raises `CloseConnectionError`."""
    if fault.close == "after":
        raise CloseConnectionError("a fault was injected: the connection was closed in place of a response")
    context.throttle_ms = max(context.throttle_ms, fault.throttle_ms)


def damage_answer(fault: RequestFault, answer: Answer) -> None:
    """Cut, drop or delay an encoded response."""
    if fault.close == "within":
        whole = b"".join(part.read() if isinstance(part, FileSlice) else part for part in answer.parts)
        answer.parts, answer.closes = [whole[: len(whole) // 2]], True
    elif fault.lose_answer:
        answer.parts = []
    answer.delay_ms = fault.answer_delay_ms


async def answer_with_faulty_items(
    handler: Handler[Any, Any], request: Any, context: RequestContext
) -> Response | None:
    """Apply armed faults to the whole request or to some of its items."""
    faults = context.faults
    faults.check(handler.api_key)
    group = getattr(request, "group_id", None)
    fault = faults.for_named(handler.api_key, None, None, group) if group else None
    if fault is not None:
        raise fault.error(INJECTED)
    items = FaultyItems(faults, handler, context)
    items.take_out(request)
    response: Response | None = await handler.function(request, context)
    items.put_in(response)
    return response


class FaultyItems:
    """The faulty items of one request: call `take_out` before the handler and `put_in` after it."""

    def __init__(self, faults: Faults, handler: Handler[Any, Any], context: RequestContext) -> None:
        self._faults = faults
        self._handler = handler
        self._context = context
        self._taken: list[Any] = []

    def take_out(self, request: Any) -> None:
        """Remove the faulty items from a request that changes state."""
        if self._handler.api_key not in _CHANGING or self._handler.on_error is None:
            return
        for field in type(request).__fields__:
            if field.is_array:
                items = getattr(request, field.name) or []
                setattr(request, field.name, [item for item in items if not self._takes(request, field.name, item)])

    def put_in(self, response: Any) -> None:
        """Add error results for the removed items, or replace faulty items in the response of another API."""
        for failed in self._taken:
            for field in type(failed).__fields__:
                if field.is_array:
                    getattr(response, field.name).extend(getattr(failed, field.name))
        if self._handler.api_key not in _CHANGING:
            self._replace_within(response, None, None)

    def _takes(self, request: Any, name: str, item: Any) -> bool:
        """Remove the faulty parts of an item; return whether nothing remains of it."""
        if isinstance(item, str):
            group = "group" in name
            return self._takes_whole(
                request, name, item, self._find(None if group else item, None, item if group else None)
            )
        topic = self._topic_of(item)
        if not hasattr(item, "partitions"):
            return self._takes_whole(request, name, item, self._find(topic, None, None))
        kept = []
        for part in item.partitions:
            fault = self._find(topic, _partition_of(part), None)
            if fault is None:
                kept.append(part)
            else:
                self._fail(request, name, _copy(item, {"partitions": [part]}), fault)
        item.partitions = kept
        return not kept

    def _takes_whole(self, request: Any, name: str, item: Any, fault: Fault | None) -> bool:
        if fault is not None:
            self._fail(request, name, item, fault)
        return fault is not None

    def _fail(self, request: Any, name: str, item: Any, fault: Fault) -> None:
        """Build the API's error response for this item alone."""
        nothing: dict[str, Any] = {field.name: [] for field in type(request).__fields__ if field.is_array}
        alone = _copy(request, nothing | {name: [item]})
        assert self._handler.on_error is not None
        self._taken.append(self._handler.on_error(alone, self._context, fault.error.code, INJECTED))

    def _replace_within(self, struct: Any, topic: str | None, group: str | None) -> None:
        for field in type(struct).__fields__:
            items = getattr(struct, field.name) if field.is_array and field.struct is not None else None
            for number, item in enumerate(items or ()):
                inner_topic, inner_group = topic or self._topic_of(item), group or _first(item, _GROUP_FIELDS)
                fault = None
                if hasattr(item, "error_code"):
                    fault = self._find(inner_topic, _first(item, _PARTITION_FIELDS), inner_group)
                if fault is None:
                    self._replace_within(item, inner_topic, inner_group)
                else:
                    assert items is not None
                    items[number] = _failed(item, fault, self._context.version)

    def _topic_of(self, item: Any) -> str | None:
        if getattr(item, "resource_type", _TOPIC_RESOURCE) != _TOPIC_RESOURCE:
            return None
        name: str | None = _first(item, _TOPIC_FIELDS)
        if name or not hasattr(item, "topic_id"):
            return name
        found = self._context.metadata.image.topics_by_id.get(item.topic_id)
        return None if found is None else found.name

    def _find(self, topic: str | None, partition: int | None, group: str | None) -> Fault | None:
        return self._faults.for_named(self._handler.api_key, topic, partition, group)


def _failed(item: Any, fault: Fault, version: int) -> Any:
    """Return a failed copy of a response item: the fields that identify it, and the error."""
    made = type(item)()
    for field in type(item).__fields__:
        if field.name in _IDENTITY:
            setattr(made, field.name, getattr(item, field.name))
        elif field.name == "error_message" and version in field.versions:
            made.error_message = INJECTED
    made.error_code = fault.error.code
    return made


def _copy(struct: Any, changes: dict[str, Any]) -> Any:
    made = type(struct)()
    for field in type(struct).__fields__:
        setattr(made, field.name, changes.get(field.name, getattr(struct, field.name)))
    return made


def _partition_of(part: Any) -> int:
    return part if isinstance(part, int) else int(_first(part, _PARTITION_FIELDS))


def _first(struct: Any, names: tuple[str, ...]) -> Any:
    return next((getattr(struct, name) for name in names if getattr(struct, name, None) is not None), None)
