"""The command line without click: version, help, a plain broker, and errors about missing packages."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from triokafka.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
_WITHOUT_CLICK = """
import sys
sys.modules["click"] = sys.modules["rich"] = None  # importing either raises ModuleNotFoundError
sys.argv[0] = "triokafka"
from triokafka.cli import main
main()
"""


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-c", _WITHOUT_CLICK, *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


def test_version_is_printed_without_click() -> None:
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("triokafka ") and "kernels" in done.stdout


def test_help_without_click_lists_the_commands_and_names_the_package() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS) and "pip install 'click>=8.2'" in done.stdout


@pytest.mark.parametrize("name", ["topics", "consume"])
def test_command_that_needs_click_names_the_package(name: str) -> None:
    done = run(name, "--help")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"triokafka {name}: this needs the package click, which is not installed. Install it: "
        "pip install 'click>=8.2'\n"
    )


def test_unknown_command_without_click_is_wrong_use() -> None:
    done = run("topcs")
    assert done.returncode == 2
    assert "There is no command 'topcs'. Did you mean topics?" in done.stderr


def test_help_without_click_ignores_a_closed_pipe() -> None:
    shell = f"set -o pipefail; {sys.executable} -c '{_WITHOUT_CLICK}' --help | head -0"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.stderr == ""


def test_broker_runs_without_click() -> None:
    process = subprocess.Popen(
        command("broker", "--in-memory", "--listen", "127.0.0.1:0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready 127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    _, error_output = process.communicate(timeout=60)
    assert (process.returncode, error_output) == (0, "")


def test_broker_without_click_refuses_wrong_use_in_one_line() -> None:
    done = run("broker", "--in-memory", "--data-dir", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "triokafka broker: --in-memory and --data-dir exclude each other. See triokafka broker --help.\n"
    )
    done = run("broker", "--in-memory", "--nodes", "3")
    assert done.returncode == 1 and "pip install 'click>=8.2'" in done.stderr and "--listen" in done.stderr
