"""The modules that a broker imports before its first answer, which take most of its start, and those that wait.

Nothing is timed here: ``python -m benchmarks.broker --only starting`` does that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import triokafka
from tests.unit.broker_stub.api.node import Node, memory_world
from tests.unit.broker_stub.api.test_group_handlers import stable
from triokafka.broker_stub.api import MODULES
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.node import Node as BrokerNode

START = """
import json, struct, sys, typing
import triokafka.cli
from triokafka.cli.broker_options import plain_options
from triokafka.cli.broker_run import prepare
prepare(plain_options(["--listen", "127.0.0.1:0", "--data-dir", sys.argv[1]]))  # all but running it
import trio
from triokafka.broker_stub import deferred_imports
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.node import Node
from triokafka.world.system import RealWorld

deferred_imports._FIRST_ANSWERS_SECONDS = 2  # the answer comes first however slow the machine is

async def main():
    config = BrokerConfig(listeners="PLAINTEXT://127.0.0.1:0", log_dirs=(sys.argv[1],))
    async with Node(config, world=RealWorld()) as node:
        host, port = node.broker.bootstrap_servers.split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(struct.pack(">ihhih", 10, 18, 0, 1, -1))
            assert await stream.receive_some()
        first = sorted(sys.modules)
        ours = [vars(sys.modules[name]).values() for name in first if name.startswith("triokafka.")]
        classes = {cls for values in ours for cls in values if isinstance(cls, type)}
        names = {cls: f"{cls.__module__}.{cls.__qualname__}" for cls in classes}
        frozen = [names[cls] for cls in classes if getattr(vars(cls).get("__dataclass_params__"), "frozen", False)]
        dear = [names[cls] for cls in classes if typing.NamedTuple in vars(cls).get("__orig_bases__", ())]
        while "triokafka.broker_stub.metrics.broker_catalogue" not in sys.modules:
            await trio.sleep(0.01)
        print(json.dumps({"first": first, "frozen": frozen, "dear": dear, "later": sorted(sys.modules)}))

trio.run(main)
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The modules at the first answer, their expensive classes, and the modules a little later."""
    root = str(Path(triokafka.__file__).parent.parent)
    command = [sys.executable, "-c", START, str(tmp_path_factory.mktemp("data"))]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": root}, check=True, capture_output=True, text=True, timeout=60
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def within(modules: list[str], package: str) -> set[str]:
    """The modules of a package, itself included."""
    return {name for name in modules if name == package or name.startswith(f"{package}.")}


@pytest.mark.parametrize(
    "package",
    [
        "triokafka.coordinator",  # until there is a log for groups, or somebody asks
        "triokafka.assignors",
        "triokafka.broker_stub.metrics.broker_catalogue",
        "triokafka.broker_stub.control.endpoint",
        "triokafka.testing",
        "triokafka.network",
        "triokafka.formats",
        "pyarrow",
        "rich",
        "click",
        "gettext",
        "argparse",
        "csv",
        "email",
        "importlib.metadata",
        "zipfile",
        "triokafka.broker_stub.log.cleaner.cleaner_pass",
        "triokafka.records.arrow",
        "triokafka.records._columns",
        "triokafka.records._from_columns",
        pytest.param(
            "asyncio",
            marks=pytest.mark.skipif(sys.version_info >= (3, 14), reason="construct imports pdb, and that asyncio"),
        ),
        "multiprocessing",
        "unittest",
        "http",
        "difflib",
    ],
)
def test_first_answer_waits_for_no_import_of(package: str, start: dict[str, Any]) -> None:
    assert not within(start["first"], package)


def test_first_answer_waits_for_no_more_of_a_package_than_its_extension(start: dict[str, Any]) -> None:
    assert within(start["first"], "crc32c") == {"crc32c._crc32c"}


def test_only_the_handler_that_was_requested_is_imported_before_it_answers(start: dict[str, Any]) -> None:
    package = "triokafka.broker_stub.api"
    assert within(start["first"], package) == {package, f"{package}.api_versions"}


def test_messages_of_clients_are_imported_at_their_first_request(start: dict[str, Any]) -> None:
    """The controller knows fifteen more, and imports them where it answers them."""
    package = "triokafka.protocol.api"
    names = ("api_versions", "elect_leaders", "fetch")
    assert within(start["first"], package) == {package, *(f"{package}.{name}" for name in names)}


def test_all_handlers_and_the_group_coordinator_are_there_soon_after_the_start(start: dict[str, Any]) -> None:
    """No client's first request should wait for them, and later the process may have no free file descriptors."""
    wanted = {f"triokafka.broker_stub.api.{name}" for name in MODULES} | {
        "triokafka.coordinator.group.group_coordinator"
    }
    assert wanted <= set(start["later"])


def test_values_that_a_start_needs_are_no_frozen_dataclasses(start: dict[str, Any]) -> None:
    """A frozen dataclass compiles six functions when its module is imported; a named tuple costs a tenth of that."""
    assert start["frozen"] == []


def test_named_tuples_that_a_start_needs_are_those_that_are_made_quickly(start: dict[str, Any]) -> None:
    """There are a hundred: with `typing.NamedTuple` they were a twelfth of the start."""
    assert start["dear"] == []


@pytest.mark.parametrize("looks", ["before", "after", "never"])
async def test_groups_are_served_whenever_the_coordinator_was_made(looks: str) -> None:
    process = BrokerNode(BrokerConfig.for_tests(log_dirs=("/data",)), world=memory_world())
    broker = process.broker
    if looks == "before":
        assert broker.group_coordinator.runtime.partitions == 4
    with trio.fail_after(20):
        async with process:
            node = Node(process)
            if looks == "after":
                assert broker.group_coordinator.runtime.partitions == 4
            assert (await stable(node)).error_code == 0
