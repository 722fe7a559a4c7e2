"""The names of the commands with one line about each, and the version. Imports nothing but the standard library."""

from __future__ import annotations

import platform
from typing import Final

COMMANDS: Final = {
    "broker": "run one broker",
    "completion": "print what makes a shell complete commands and options",
    "configs": "show and change the configuration of topics, brokers, groups, clients",
    "consume": "print a topic's records",
    "demo": "the main job on real input, end to end",
    "groups": "list and describe consumer groups with their lag, reset and delete their offsets",
    "log": "print the files of a log, repair damaged metadata",
    "perf": "measure how fast records are sent and read",
    "produce": "send lines from standard input to a topic",
    "protocol": "print how a message is declared and coded",
    "spark": "look at what Spark needs here, and say how to fix it",
    "topics": "list, create, describe, grow and delete topics",
}


def version_line() -> str:
    """Return the version of the package, of Python, and whether the kernels are compiled."""
    from importlib.metadata import PackageNotFoundError, version  # takes as long as half the other imports

    from triokafka.kernels import implementation

    try:
        number = version("triokafka")
    except PackageNotFoundError:
        number = "from a source tree that is not installed"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"triokafka {number} ({implementation()} kernels, {python})"
