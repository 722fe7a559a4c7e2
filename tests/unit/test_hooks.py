"""Hooks of a client: each is called, and none can harm the client."""

from __future__ import annotations

import inspect
import logging

import pytest

from triokafka.client.config import ProducerOptions
from triokafka.errors import ConfigurationError
from triokafka.hooks import EVENTS, HookChain, Hooks
from triokafka.structs import Node

NODE = Node(1, "h", 9092)


class Watcher(Hooks):
    def __init__(self) -> None:
        self.calls: list[object] = []

    def on_throttle(self, node: Node, seconds: float) -> None:
        self.calls.append((node, seconds))


class Broken(Hooks):
    def on_throttle(self, node: Node, seconds: float) -> None:
        raise RuntimeError("a bad hook")


def test_every_hook_does_nothing_by_itself() -> None:
    for name in EVENTS:
        hook = getattr(Hooks(), name)
        assert hook(*(None for _ in inspect.signature(hook).parameters)) is None


def test_all_hooks_of_a_chain_are_called() -> None:
    one, other = Watcher(), Watcher()
    HookChain([one, other]).on_throttle(NODE, 1.5)
    assert one.calls == other.calls == [(NODE, 1.5)]


def test_hook_that_raises_is_logged_and_stops_no_other_hook(caplog: pytest.LogCaptureFixture) -> None:
    watcher = Watcher()
    with caplog.at_level(logging.ERROR, logger="triokafka.hooks"):
        HookChain([Broken(), watcher]).on_throttle(NODE, 1.5)
    assert watcher.calls == [(NODE, 1.5)]
    assert "on_throttle" in caplog.text
    assert "a bad hook" in caplog.text


def test_chain_is_false_without_hooks_only() -> None:
    assert not HookChain()
    assert HookChain([Watcher()])


def test_chain_skips_methods_that_no_hook_overrides() -> None:
    HookChain([Watcher()]).on_client_failed(ValueError())


def test_option_takes_one_object_or_several() -> None:
    one, other = Watcher(), Watcher()
    assert ProducerOptions.parse({"hooks": one}).hooks == (one,)
    assert ProducerOptions.parse({"hooks": [one, other]}).hooks == (one, other)
    assert ProducerOptions.parse({"hooks": one}).network(client_id="c").hooks
    assert not ProducerOptions.parse({}).network(client_id="c").hooks
    for wrong in (print, Watcher, [one, None], None):
        with pytest.raises(ConfigurationError, match=r"triokafka\.Hooks"):
            ProducerOptions.parse({"hooks": wrong})
