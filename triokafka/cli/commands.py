"""The names of the commands with one line about each, and the version. Imports nothing but the standard library."""

from __future__ import annotations

import platform
from typing import Final

COMMANDS: Final = {
    "acls": "list, add and remove access control lists",
    "broker": "run one broker",
    "client-metrics": "subscribe to the metrics that clients push to brokers",
    "cluster": "run several nodes, each a process of its own",
    "completion": "print the script for command completion in a shell",
    "configs": "show and change configurations of topics, brokers, groups, clients",
    "console": "serve a web page for a cluster",
    "consume": "print a topic's records",
    "delegation-tokens": "create, renew, expire and describe delegation tokens",
    "delete-records": "delete the records of partitions before an offset",
    "demo": "send real flight data through broker, group and Spark, and check the result",
    "features": "show, upgrade, downgrade and disable features of the cluster",
    "get-offsets": "print the offsets of partitions at a time, or at the ends of the log",
    "groups": "list and describe consumer groups with lag, reset and delete offsets",
    "leader-election": "elect leaders of partitions",
    "log": "print log files and log directories, repair damaged metadata",
    "mirror": "copy topics and positions of groups to another cluster",
    "nodes": "list the brokers of a cluster, remove one that will not return",
    "perf": "measure how fast records are sent and read",
    "produce": "send lines from standard input to a topic",
    "protocol": "print the fields and the code of a protocol message",
    "quotas": "show, change and resolve quotas of users, client ids and addresses",
    "quorum": "describe the metadata quorum, add and remove controllers",
    "reassign": "move partitions to other brokers",
    "spark": "check the Spark installation, and print fixes",
    "storage": "format data directories for a cluster, show them, make ids",
    "topics": "list, create, describe, alter and delete topics",
    "transactions": "list and describe transactions, find hanging ones, abort them",
    "verify-replicas": "compare the replicas of partitions by checksum, and report the first difference",
    "users": "list, add and remove SCRAM users",
}


def version_line() -> str:
    """Return the versions of the package and of Python, and whether the kernels are compiled."""
    from importlib.metadata import PackageNotFoundError, version  # takes as long as half the other imports

    from triokafka.kernels import implementation

    try:
        number = version("triokafka")
    except PackageNotFoundError:
        number = "from a source tree that is not installed"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"triokafka {number} ({implementation()} kernels, {python})"
