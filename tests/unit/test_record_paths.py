"""The numbered steps of the architecture pages name functions that a real record passes in that order."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from triokafka import Producer
from triokafka.client.producer.kernel import FastPath
from triokafka.testing import running_broker

ROOT = Path(__file__).parents[2]
_STEP = re.compile(r"^\d+\. .*(?:\n +.*)*", re.MULTILINE)
_NAME = re.compile(r"`([A-Z]\w+\.\w+|[a-z]\w+_\w+)`")


def steps(page: str) -> list[str]:
    """The functions that the steps of a page name, in order. Names with an underscore only are functions of modules."""
    text = (ROOT / "docs" / "architecture" / page).read_text(encoding="utf-8")
    section = text.partition("\n## The steps\n")[2].partition("\n## ")[0]
    found = [name for step in _STEP.findall(section) for name in _NAME.findall(step)]
    return [name for name in found if name not in OPTIONS]


OPTIONS = {"max_block_ms"}


@contextmanager
def traced() -> Iterator[list[str]]:
    """The qualified names of the functions called in this thread, in order; those of compiled classes too."""
    called: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        name = ""
        if event == "call":
            name = frame.f_code.co_qualname
        elif event == "c_call" and type(getattr(argument, "__self__", None)) is FastPath:
            name = argument.__qualname__
        # Where CPython's own coroutine is cheaper to await, `Producer.send` calls this one.
        called.append("FastPath.send" if name == "FastPath.append" else name)

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


def assert_called_in_order(names: list[str], called: list[str]) -> None:
    position = 0
    for number, name in enumerate(names):
        assert name in called[position:], f"{name} is not called after {names[:number][-1:]}"
        position = called.index(name, position) + 1


async def test_first_record_of_a_producer_takes_the_documented_steps() -> None:
    names = steps("produced-record.md")
    assert len(names) > 20
    async with running_broker() as broker:
        with traced() as called:
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                delivery = await producer.send("orders", b"value")
                await delivery
    assert_called_in_order(names, called)
