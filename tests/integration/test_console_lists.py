"""Lists of the console over many topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import triokafka
from triokafka.console import answers, cluster_view
from triokafka.console.cluster_view import ClusterView
from triokafka.console.limits import ConsoleLimits
from triokafka.testing import running_broker
from triokafka.world.system import RealWorld


async def test_a_page_of_topics_describes_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions of all topics of a large cluster take seconds."""
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
    """The names of all topics of a large cluster take a quarter of a second."""
    monkeypatch.setattr(answers, "_FRESH", 3600.0)
    async with running_broker() as broker:
        view = ClusterView({"bootstrap_servers": broker.bootstrap_servers}, RealWorld(), ConsoleLimits())
        async with view.admin as admin:
            await admin.create_topics([triokafka.NewTopic(f"t{number}", number) for number in range(1, 3)])
            await view.sample_topics([])
            monkeypatch.setattr(admin, "list_topics", None)
            found = await view.topics("t", 0, internal=False, problems=False)
            assert [(row["name"], row["partitions"]) for row in found["topics"]] == [("t1", 1), ("t2", 2)]
