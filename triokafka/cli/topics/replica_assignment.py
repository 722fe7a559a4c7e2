"""``--replica-assignment``: the brokers of each partition."""

from __future__ import annotations

import click


def parse_assignment(text: str) -> list[list[int]]:
    """Parse ``0:1,1:2``: partitions separated by commas, their brokers by colons."""
    try:
        found = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--replica-assignment takes broker ids such as 0:1,1:2, not {text!r}.") from None
    if any(not 0 <= broker < 2**31 for brokers in found for broker in brokers):
        raise click.UsageError(f"--replica-assignment: broker ids range from 0 to {2**31 - 1:,}.")
    if any(len(set(brokers)) < len(brokers) for brokers in found):
        raise click.UsageError("--replica-assignment: a partition names the same broker twice.")
    if len({len(brokers) for brokers in found}) > 1:
        raise click.UsageError("--replica-assignment: all partitions must have the same number of replicas.")
    return found
