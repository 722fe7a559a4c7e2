"""The console in a real browser: display, mouse and keyboard. The run over a failing cluster is a long one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
import trio

import triokafka
from tests.support.accessibility import problems
from tests.support.browser import CHROMIUM, Page, browser
from tests.support.console_server import served_console
from triokafka.console.limits import ConsoleLimits
from triokafka.testing import RunningBroker, running_broker, running_cluster

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

EVIL = '<img src=x onerror="console.error(1)"><script>console.error(2)</script>'
PATIENCE = 850


async def checked(page: Page) -> None:
    """Assert that the page has no accessibility problems."""
    assert await problems(page) == []


def assert_quiet(page: Page, url: str) -> None:
    """Assert that the browser reported no errors, and sent requests only to the console."""
    assert page.errors == []
    assert [one for one in page.requests if not one.startswith((url, "data:", "about:"))] == []


@asynccontextmanager
async def page_of_a_broker() -> AsyncIterator[tuple[RunningBroker, Page, str]]:
    with trio.fail_after(PATIENCE):
        async with running_broker() as broker:
            client = {"bootstrap_servers": broker.bootstrap_servers}
            async with served_console(client, allow_changes=True) as url, browser() as page:
                yield broker, page, url


async def test_page_shows_topics_and_free_text_is_text() -> None:
    """Markup in keys, values, headers, group ids and client ids is not executed, and is shown as text."""
    async with page_of_a_broker() as (broker, page, url):
        address = broker.bootstrap_servers
        async with triokafka.Producer(bootstrap_servers=address) as producer:
            await (await producer.send("orders", EVIL.encode(), key=EVIL.encode(), headers=[(EVIL, EVIL.encode())]))
            await (await producer.send("orders", b'{"half": "\\ud800"}', key=b"\xff\xfe"))
        async with triokafka.Consumer("orders", bootstrap_servers=address, group_id=EVIL, client_id=EVIL) as consumer:
            await consumer.poll(timeout_ms=0)
            await page.look(1200)
            await page.open(url)
            await page.wait_for("document.querySelector('main h1')")
            await checked(page)
            await page.press("g")
            await page.press("t")
            await page.click("main a[href='#/topics/orders']")
            await page.wait_for_text("2 shown, 2 read.")
            await page.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
            text = await page.run("document.querySelector('main').innerText")
            assert text.count(EVIL) >= 4
            assert "ff fe" in text
            await checked(page)
            await page.open(f"{url}#/groups/{quote(EVIL, safe='')}")
            await page.wait_for(f"document.querySelector('main h1').innerText.includes({json.dumps(EVIL)})")
            await page.wait_for_text(f"{EVIL} at")
        await page.open(f"{url}#/topics/orders/messages?live=1")
        await page.wait_for_text("Waiting for new messages")
        async with triokafka.Producer(bootstrap_servers=address) as producer:
            await (await producer.send("orders", b"first"))
            await page.wait_for("document.querySelector('main tbody')")
            await page.run("document.querySelector('main tbody details').open = true")
            await (await producer.send("orders", b"second"))
            await page.wait_for("document.querySelectorAll('main tbody tr').length === 2")
        opened = await page.run("[...document.querySelectorAll('main tbody details')].map((one) => one.open)")
        assert opened == [False, True], "an open message stays open when others arrive"
        assert_quiet(page, url)


async def check_all_pages(page: Page, url: str) -> None:
    """Check every page at three widths, in both themes."""
    names = [
        "", "topics", "topics/orders/messages", "topics/orders/partitions", "topics/orders/configuration",
        "topics/orders/producers", "groups", "groups/billing", "brokers", "brokers/2", "metrics", "transactions",
        "access", "faults",
    ]  # fmt: skip
    hindered: dict[str, list[str]] = {}
    for width, dark in ((360, False), (768, True), (1440, False)):
        await page.look(width, dark=dark)
        for name in names:
            await page.open(f"{url}#/{name}")
            await page.wait_for("document.querySelector('main h1')")
            if found := await problems(page):
                hindered[f"{name} at {width} px, dark {dark}"] = found
    assert hindered == {}


async def tab_to(page: Page, selector: str) -> None:
    """Move the focus to an element by the keyboard alone."""
    for _ in range(60):
        await page.press("Tab")
        if await page.run(f"document.activeElement.matches({json.dumps(selector)})"):
            return
    raise AssertionError(f"Tab does not reach {selector}")


async def operate_by_keyboard(page: Page, url: str) -> None:
    await page.open(f"{url}#/topics")
    await page.wait_for_text("Create a topic")
    await page.press("/")
    await page.call("Input.insertText", text="ord")
    await page.wait_for("location.hash.includes('text=ord')")
    await page.press("Escape")
    await tab_to(page, "main a[href='#/topics/orders']")
    await page.press("Enter")
    await page.wait_for_text("shown,")
    await page.press("?")
    await page.wait_for("document.getElementById('help').open")
    await page.press("Escape")
    await page.wait_for("!document.getElementById('help').open")


async def operate_topics(page: Page, url: str) -> None:
    await page.open(f"{url}#/topics")
    await page.click("main details summary")
    await page.fill("main input[name=name]", "made-by-hand")
    await page.click("main details button")
    await page.wait_for_text("Topic made-by-hand was created.")
    await page.open(f"{url}#/topics/made-by-hand/messages")
    await page.click("main > details > summary")
    await page.fill("main textarea[name=value]", "written by hand")
    await page.click("main > details button")
    await page.wait_for_text("Written to partition")
    await page.wait_for_text("written by hand")
    await page.open(f"{url}#/topics/orders/messages")
    await page.fill("main input[name=key]", "table 1")
    await page.click("main form button.primary")
    await page.wait_for("location.hash.includes('key=table')")
    await page.wait_for_text("shown,")
    keys = await page.run("[...document.querySelectorAll('main tbody tr')].map((row) => row.children[3].innerText)")
    assert set(keys) == {"table 1"}
    await page.open(f"{url}#/topics/orders/configuration")
    await page.wait_for_text("retention.ms")
    await page.open(f"{url}#/topics/made-by-hand/partitions")
    await page.click("main details summary")
    await page.fill("main input[name=confirmed]", "made-by-hand")
    await page.click("main button.danger")
    await page.wait_for_text("Topic made-by-hand was deleted.")


@asynccontextmanager
async def page_of_a_live_cluster() -> AsyncIterator[tuple[Page, str, Callable[[str], trio.CancelScope]]]:
    """Run three nodes with traffic, a group with one member, and a console; the yielded function adds a member."""
    limits = ConsoleLimits(sample_interval_ms=1_000)
    with trio.fail_after(PATIENCE):
        async with running_cluster(nodes=3) as cluster, trio.open_nursery() as traffic:
            client: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
            async with triokafka.AdminClient(**client) as admin:
                await admin.create_topics([triokafka.NewTopic("orders", 6, 3)])

            async def produce() -> None:
                async with triokafka.Producer(**client) as producer:
                    for number in range(1_000_000):
                        await producer.send("orders", b'{"id": %d}' % number, key=b"table %d" % (number % 3))
                        await trio.sleep(0.1)

            async def consume(name: str, scope: trio.CancelScope) -> None:
                options: dict[str, Any] = {"group_id": "billing", "client_id": name, "auto_offset_reset": "earliest"}
                with scope:
                    async with triokafka.Consumer("orders", **options, **client) as consumer:
                        while True:
                            await consumer.poll(timeout_ms=200)

            def add_member(name: str) -> trio.CancelScope:
                scope = trio.CancelScope()
                traffic.start_soon(consume, name, scope)
                return scope

            traffic.start_soon(produce)
            add_member("till-a")
            async with (
                served_console(client, target=cluster, limits=limits, allow_changes=True) as url,
                browser() as page,
            ):
                await page.look(1200)
                yield page, url, add_member
                assert_quiet(page, url)
            traffic.cancel_scope.cancel()


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_every_page_of_a_live_cluster_is_accessible_at_three_widths() -> None:
    async with page_of_a_live_cluster() as (page, url, _):
        await page.open(f"{url}#/groups/billing")
        await page.wait_for_text("till-a at")
        await page.open(f"{url}#/metrics")
        await page.wait_for("document.querySelectorAll('svg.chart').length > 8")
        await check_all_pages(page, url)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_pages_are_used_while_a_group_rebalances_and_nodes_fail() -> None:
    async with page_of_a_live_cluster() as (page, url, add_member):
        await page.open(f"{url}#/groups/billing")
        await page.wait_for_text("till-a at")
        second = add_member("till-b")
        await page.wait_for_text("till-b at")
        second.cancel()
        await page.wait_for("!document.body.innerText.includes('till-b at')")
        await page.wait_for("document.querySelector('main input[type=range]')")
        await page.run("document.querySelector('main input[type=range]').focus()")
        await page.press("ArrowLeft")
        await operate_by_keyboard(page, url)
        await operate_topics(page, url)

        await page.open(f"{url}#/faults")
        await page.click("button[aria-label='Kill broker 3']")
        await page.wait_for_text("stopped")
        await page.open(f"{url}#/topics?problems=1")
        await page.wait_for_text("under-replicated")
        await checked(page)
        await page.open(f"{url}#/metrics")
        await page.wait_for("document.querySelectorAll('svg.chart').length > 8")
        await page.open(f"{url}#/faults")
        await page.click("button[aria-label='Start broker 3']")
        await page.wait_for_text("Broker 3 was started.")
        await page.click("button[aria-label='Freeze broker 2']")
        await page.wait_for_text("frozen")
        await page.click("button[aria-label='Thaw broker 2']")
        await page.wait_for("!document.querySelector('main tbody').innerText.includes('frozen')")
        await page.open(f"{url}#/topics?problems=1")
        await page.wait_for_text("No topic matches.")
