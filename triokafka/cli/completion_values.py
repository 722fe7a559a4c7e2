"""Completion of topic, group and profile names: within a second, and without printing errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli import profiles

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from triokafka import AdminClient

LIMIT: Final = 1.0
"""Seconds that completion waits for brokers."""
PROFILE_NAME: Final = "triokafka.profile.name"
"""Key of the ``--profile`` value in click's context during completion."""


def topic_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a topic, also after a comma."""

    async def ask(admin: AdminClient) -> Iterable[str]:
        return [listing.name for listing in await admin.list_topics()]

    before, comma, begun = incomplete.rpartition(",")
    return _items(_from_broker(ctx, ask), begun, before + comma)


def group_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a group."""

    async def ask(admin: AdminClient) -> Iterable[str]:
        return [listing.group_id for listing in await admin.list_groups()]

    return _items(_from_broker(ctx, ask), incomplete)


def profile_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a profile."""
    try:
        return _items(profiles.names(), incomplete)
    except Exception:
        return []


def _items(names: Iterable[str], begun: str, before: str = "") -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    # Complete internal topics only after a typed underscore.
    found = sorted(name for name in names if name.startswith(begun) and (begun or not name.startswith("__")))
    return [CompletionItem(before + name) for name in found]


def _from_broker(ctx: click.Context, ask: Callable[[AdminClient], Any]) -> Iterable[str]:
    import trio

    import triokafka

    found: list[str] = []

    async def main() -> None:
        with trio.move_on_after(LIMIT):
            async with triokafka.AdminClient(**_client_options(ctx)) as admin:
                found.extend(await ask(admin))

    with open(os.devnull, "w", encoding="utf-8") as silence, redirect_stderr(silence):
        try:
            trio.run(main)
        except Exception:
            pass  # no completion without a reachable broker
    return found


def _client_options(ctx: click.Context) -> dict[str, Any]:
    name = ctx.meta.get(PROFILE_NAME)
    profile = profiles.find(name, "--profile") if name else None
    servers, profile = profiles.choose_brokers(ctx.params.get("bootstrap"), profile)
    more = profile.options if profile is not None else {}
    return {**more, "bootstrap_servers": servers, "default_api_timeout_ms": LIMIT * 1000}
