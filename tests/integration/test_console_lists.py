"""Lists of the console over many topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import trio

import triokafka
from tests.support.console_server import served_console
from triokafka.console import answer_cache, cluster_view, sessions
from triokafka.console.cluster_view import ClusterView
from triokafka.console.limits import ConsoleLimits
from triokafka.testing import running_broker
from triokafka.world.system import RealWorld


async def test_a_page_of_topics_describes_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Describing the partitions of all topics of a large cluster takes seconds."""
    monkeypatch.setattr(cluster_view, "PAGE", 2)
    async with running_broker() as broker:
        view = ClusterView({"bootstrap_servers": broker.bootstrap_servers}, RealWorld(), ConsoleLimits())
        async with view.admin as admin:
            await admin.create_topics([triokafka.NewTopic(f"t{number}", number) for number in range(1, 6)])
            described: list[str] = []
            describe = admin.describe_topics

            async def noting(names: Iterable[str], **options: Any) -> Any:
                described.extend(names := list(names))
                return await describe(names, **options)

            monkeypatch.setattr(admin, "describe_topics", noting)
            found = await view.topics("t", 1, internal=False, problems=False)
            assert [(row["name"], row["partitions"]) for row in found["topics"]] == [("t3", 3), ("t4", 4)]
            assert (found["count"], found["pages"], described) == (5, 3, ["t3", "t4"])
            assert (await view.topics("t", 9, internal=False, problems=False))["page"] == 2, "the last one"
            nothing = await view.topics("nowhere", 0, internal=True, problems=False)
            assert (nothing["topics"], nothing["count"], nothing["pages"]) == ([], 0, 1)
            assert (await view.topics("", 0, internal=True, problems=True))["count"] == 0


async def test_topics_that_the_samples_described_are_listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing the names of all topics of a large cluster takes a quarter of a second."""
    monkeypatch.setattr(answer_cache, "_FRESH", 3600.0)
    async with running_broker() as broker:
        view = ClusterView({"bootstrap_servers": broker.bootstrap_servers}, RealWorld(), ConsoleLimits())
        async with view.admin as admin:
            await admin.create_topics([triokafka.NewTopic(f"t{number}", number) for number in range(1, 3)])
            await view.sample_topics([])
            monkeypatch.setattr(admin, "list_topics", None)
            found = await view.topics("t", 0, internal=False, problems=False)
            assert [(row["name"], row["partitions"]) for row in found["topics"]] == [("t1", 1), ("t2", 2)]


async def test_console_has_read_the_names_of_topics_when_its_address_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first list of topics does not wait for them, and samples do not take the processor from it."""
    monkeypatch.setattr(sessions, "_WARM_SECONDS", 600.0)
    events: list[str] = []
    names = ClusterView.names

    async def noting_names(view: ClusterView) -> Any:
        found = await names(view)
        events.append("names")
        return found

    async def noting_samples(view: ClusterView, seen: Iterable[str]) -> None:
        events.append("samples")

    monkeypatch.setattr(ClusterView, "names", noting_names)
    monkeypatch.setattr(ClusterView, "sample_groups", noting_samples)
    async with running_broker() as broker, served_console({"bootstrap_servers": broker.bootstrap_servers}):
        assert events[:1] == ["names"]


async def test_console_starts_while_its_cluster_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_WARM_SECONDS", 0.01)
    silent = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = silent[0].socket.getsockname()[1]
    with trio.fail_after(120):
        async with served_console({"bootstrap_servers": f"127.0.0.1:{port}"}) as url:
            assert url.startswith("http://127.0.0.1:")
    await silent[0].aclose()
