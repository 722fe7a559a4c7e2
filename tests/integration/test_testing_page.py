"""Every block of code in docs/testing.md works as described."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.support.broker_process import free_port

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")

_BLOCK = re.compile(
    r"^(<!-- (?P<note>[^\n]*) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks(language: str, note: str = "") -> list[str]:
    """Return the code of the blocks in a language whose note starts with the given one, or that have none."""
    found = [block for block in _BLOCK.finditer(PAGE) if block["language"] == language]
    return [b["code"] for b in found if (b["note"] or "").startswith(note) and bool(b["note"]) == bool(note)]


def test_every_block_is_run_or_gives_a_reason() -> None:
    run = len(blocks("python")) + len(blocks("console")) + len(blocks("console", "run in the background"))
    assert run + len(blocks("console", "not run")) + len(blocks("yaml", "not run")) == PAGE.count("\n```") / 2
    assert len(blocks("python")) == 11 and len(blocks("console")) == 1


def test_tests_of_the_page_pass(tmp_path: Path) -> None:
    for number, code in enumerate(blocks("python")):
        name = "conftest.py" if code.startswith("# conftest.py") else f"test_{number}.py"
        (tmp_path / name).write_text(code)
    plugin = [] if entry_points(group="pytest11", name="triokafka") else ["-p", "triokafka.testing.plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout
    assert "13 passed" in done.stdout


def test_requests_to_the_control_endpoint_are_answered(tmp_path: Path) -> None:
    (start,) = blocks("console", "run in the background")
    (requests,) = blocks("console")
    ports = {"9092": str(free_port()), "9191": str(free_port())}
    first = int(ports["9092"])
    ports |= {"9093": str(first + 1), "9094": str(first + 2)}
    command, *expected_output = re.sub(r"\b(9092|9093|9094|9191)\b", lambda found: ports[found[1]], start).splitlines()
    arguments = command.removeprefix("$ triokafka ").split()
    process = subprocess.Popen(
        [sys.executable, "-m", "triokafka", *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in expected_output] == expected_output
        for line in requests.splitlines():
            request = line.removeprefix("$ ").replace("9191", ports["9191"])
            answer = subprocess.run(request, shell=True, capture_output=True, text=True, timeout=30, check=True)
            assert "error" not in json.loads(answer.stdout) or "/faults" in request, (request, answer.stdout)
    finally:
        process.terminate()
        assert process.wait(30) == 0
