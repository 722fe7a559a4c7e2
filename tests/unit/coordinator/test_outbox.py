"""The outbox releases responses in small batches."""

from __future__ import annotations

from typing import Any

import trio

from tests.unit.coordinator.rig import RANGE, Rig
from triokafka.coordinator.runtime.outbox import AT_ONCE, Outbox
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.waiting import answer_to

MEMBERS = 4 * AT_ONCE + 1


def round_of_many() -> tuple[Rig, list[Reply[Any]]]:
    """Return a group whose members have all joined and wait for the initial delay."""
    rig = Rig()
    return rig, [rig.join(protocols=(RANGE,)) for _ in range(MEMBERS)]


def released(replies: list[Reply[Any]]) -> int:
    return sum(reply.is_set for reply in replies)


def test_few_responses_are_released_at_once_while_many_are_queued() -> None:
    outbox = Outbox()
    many: list[Reply[int]] = [Reply() for _ in range(AT_ONCE + 3)]
    few: list[Reply[int]] = [Reply() for _ in range(2)]
    outbox.give([(reply, 1) for reply in many])
    outbox.give([(reply, 2) for reply in few])
    assert (released(many), released(few), len(outbox)) == (AT_ONCE, 2, 3)
    outbox.give_more()
    assert (released(many), len(outbox)) == (AT_ONCE + 3, 0)


def test_members_of_a_large_rebalance_are_answered_in_batches() -> None:
    rig, joins = round_of_many()
    rig.world.clock += 60
    rig.runtime.fire_due()
    while rig.runtime.next_deadline() > rig.world.clock:  # members arrived: the initial delay was extended
        rig.world.clock = rig.runtime.next_deadline()
        rig.runtime.fire_due()
    seen = [released(joins)]
    while rig.runtime.next_deadline() <= rig.world.clock:
        rig.runtime.fire_due()
        seen.append(released(joins))
    assert seen == [AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE, 4 * AT_ONCE, MEMBERS]


def test_stop_releases_all_queued_answers() -> None:
    rig, joins = round_of_many()
    while not released(joins):
        rig.world.clock = rig.runtime.next_deadline()
        rig.runtime.fire_due()
    rig.runtime.stop()
    assert {reply.value.error_code for reply in joins} == {0}


async def test_other_tasks_run_between_the_responses_of_a_large_rebalance() -> None:
    rig, joins = round_of_many()
    while rig.runtime.next_deadline() != float("-inf"):
        rig.world.clock = rig.runtime.next_deadline()
        rig.runtime.fire_due()
    turns = 0
    answered_in: set[int] = set()

    async def wait(reply: Reply[Any]) -> None:
        await answer_to(reply)
        answered_in.add(turns)

    async def bystander() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as waiting:
            for reply in joins:
                waiting.start_soon(wait, reply)
            nursery.start_soon(bystander)
            nursery.start_soon(rig.task.run)
        nursery.cancel_scope.cancel()
    assert len(answered_in) >= MEMBERS // AT_ONCE
