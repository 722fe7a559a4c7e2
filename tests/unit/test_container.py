"""The container file, the compose file and the nodes' configuration name what exists, and the broker accepts them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from triokafka.cli.broker import command as broker
from triokafka.cli.storage import command as storage

ROOT = Path(__file__).parents[2]


def instructions(path: Path) -> list[tuple[str, str]]:
    """Name and text of each instruction, without comments."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name, text) for name, text in found]


IMAGE = dict(instructions(ROOT / "Containerfile"))
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
NODES: dict[str, Any] = COMPOSE["services"]


def test_image_runs_as_an_unprivileged_user_with_a_volume_and_a_health_check() -> None:
    assert IMAGE["USER"] == "10001"
    assert IMAGE["VOLUME"] == "/var/lib/triokafka"
    assert IMAGE["EXPOSE"].split() == ["9092", "9093", "9308"]
    port = re.search(r"127\.0\.0\.1:(\d+)/readyz", IMAGE["HEALTHCHECK"])
    assert port and port[1] == "9308"


def test_files_that_the_image_copies_exist_and_are_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)
    copied = [text.split() for name, text in instructions(ROOT / "Containerfile") if name == "COPY"]
    sources = [words[-2] for words in copied if words[-2] != "."]
    assert sources == ["container/entrypoint.sh", "container/node.properties"]
    assert all((ROOT / source).is_file() and source.split("/")[0] in kept for source in sources)


def test_default_command_is_a_broker_that_other_machines_reach() -> None:
    name, *arguments = json.loads(IMAGE["CMD"])
    assert name == "broker"
    options = broker.make_context(name, arguments).params
    assert options["listeners"] == ("0.0.0.0:9092",) and options["metrics"] == "0.0.0.0:9308"
    assert options["data_directories"] == (IMAGE["VOLUME"],)
    for node in NODES.values():
        name, *arguments = node["command"]
        options = broker.make_context(name, arguments).params
        assert options["config_file"] == "/etc/triokafka/node.properties" and options["metrics"] == "0.0.0.0:9308"


def test_entrypoint_formats_a_node_once_and_runs_the_command(tmp_path: Path) -> None:
    """With a stand-in for triokafka that prints its arguments."""
    program = tmp_path / "triokafka"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    script = str(ROOT / "container" / "entrypoint.sh")
    path = f"{tmp_path}:/usr/bin:/bin"
    single = subprocess.run([script, "broker"], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert single.stdout == "broker\n"
    node = subprocess.run(
        [script, "broker"], env={"PATH": path, "CLUSTER_ID": "abc"}, capture_output=True, text=True, check=True
    )
    formatted, ran = node.stdout.splitlines()
    assert formatted == (
        "storage format --ignore-formatted --cluster-id abc --config /etc/triokafka/node.properties"
    ) and ran == "broker"  # fmt: skip


def test_nodes_differ_and_publish_the_port_that_they_advertise() -> None:
    voters = [node["environment"]["VOTERS"] for node in NODES.values()]
    assert len(NODES) == 3 and len(set(voters)) == 1
    for name, node in NODES.items():
        environment = node["environment"]
        assert environment["NODE_HOST"] == node["hostname"] == name
        assert f"{environment['NODE_ID']}@{name}:9093" in environment["VOTERS"].split(",")
        port = environment["EXTERNAL_PORT"]
        assert node["ports"] == [f"127.0.0.1:{port}:{port}"]
        assert node["volumes"] == [f"{name}:{environment['DATA_DIR']}"] and name in COMPOSE["volumes"]


@pytest.mark.parametrize("name", NODES)
def test_storage_of_a_node_is_formatted_with_its_configuration(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**NODES[name]["environment"], "DATA_DIR": str(tmp_path / "data")}
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    arguments = ["format", "--cluster-id", environment["CLUSTER_ID"]]
    arguments += ["--config", str(ROOT / "container" / "node.properties")]
    done = CliRunner().invoke(storage, arguments)
    assert done.exit_code == 0, done.output
    written = (tmp_path / "data" / "meta.properties").read_text()
    assert f"node.id={environment['NODE_ID']}\n" in written and environment["CLUSTER_ID"] in written
