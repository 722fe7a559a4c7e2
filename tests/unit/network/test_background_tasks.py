"""The nursery that an ``async with`` object owns."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from triokafka.network.background_tasks import BackgroundTasks


class Owner:
    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.ended: list[str] = []
        self.tasks = BackgroundTasks(self.failures.append)

    async def __aenter__(self) -> Owner:
        await self.tasks.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ended.append("leaving")
        await self.tasks.close()

    async def live(self, name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.ended.append(name)


async def _fail() -> None:
    raise ValueError("broken")


async def test_failed_task_is_reported_and_cancels_no_other_task() -> None:
    async with Owner() as owner:
        owner.tasks.start(owner.live, "other", name="other")
        owner.tasks.start(_fail, name="broken")
        await trio.testing.wait_all_tasks_blocked()
        assert [str(failure) for failure in owner.failures] == ["broken"]
        assert owner.ended == []
    assert owner.ended == ["leaving", "other"]


async def test_failure_in_a_nursery_of_the_task_is_reported_as_itself() -> None:
    async def fail_inside() -> None:
        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            outer.start_soon(trio.sleep_forever)
            inner.start_soon(_fail)

    async with Owner() as owner:
        owner.tasks.start(fail_inside, name="nested")
        await trio.testing.wait_all_tasks_blocked()
        assert [type(failure) for failure in owner.failures] == [ValueError]


async def test_tasks_outlive_a_cancelled_body_until_the_owner_ends_them() -> None:
    owner = Owner()
    with trio.CancelScope() as scope:
        async with owner:
            owner.tasks.start(owner.live, "task", name="task")
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert owner.ended == ["leaving", "task"]


async def test_bodys_exception_leaves_as_itself() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with Owner() as owner:
            owner.tasks.start(owner.live, "task", name="task")
            raise KeyError("mine")


async def test_nothing_starts_outside_of_the_block() -> None:
    owner = Owner()
    with pytest.raises(RuntimeError, match="inside the async with block"):
        owner.tasks.start(_fail, name="early")
    async with owner:
        pass
    await owner.tasks.close()
    with pytest.raises(RuntimeError, match="inside the async with block"):
        owner.tasks.start(_fail, name="late")
