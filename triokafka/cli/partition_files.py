"""Files that list partitions, in the JSON of Kafka's tools (``kafka-leader-election``, ``kafka-reassign-partitions``).

An invalid file is a usage error that names the file, the place in it, and the problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from triokafka.cli.parameter_types import text_of_file
from triokafka.structs import TopicPartition

T = TypeVar("T")


def read_json(path: str, option: str) -> dict[str, Any]:
    """Read a JSON object from a file."""
    text = text_of_file(path, option)
    try:
        document = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {path} is not JSON: {error}.") from None
    if not isinstance(document, dict):
        raise click.UsageError(f"{option}: {path} must have a JSON object, not a {type(document).__name__}.")
    return document


def entries(
    path: str, option: str, document: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any]], T]
) -> list[T]:
    """Read each object of the list ``key`` of a document."""
    found = document.get(key)
    if not isinstance(found, list) or not found:
        raise click.UsageError(f'{option}: {path} needs a list "{key}" with at least one entry.')
    result = []
    for index, entry in enumerate(found):
        try:
            if not isinstance(entry, dict):
                raise ValueError("it is not an object")
            result.append(read(entry))
        except ValueError as error:
            raise click.UsageError(f"{option}: {path}, entry {index} of {key}: {error}.") from None
    return result


def text(entry: Mapping[str, Any], name: str) -> str:
    """Return a string of an entry. Raises `ValueError`."""
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f'"{name}" must be a string')
    return value


def number(entry: Mapping[str, Any], name: str) -> int:
    """Return a number of an entry, not negative. Raises `ValueError`."""
    value = entry.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f'"{name}" must be a number that is not negative')
    return value


def read_partitions(path: str, option: str) -> list[TopicPartition]:
    """Read ``{"partitions": [{"topic": "foo", "partition": 1}]}``."""
    document = read_json(path, option)
    partitions = entries(
        path,
        option,
        document,
        "partitions",
        lambda entry: TopicPartition(text(entry, "topic"), number(entry, "partition")),
    )
    twice = sorted({str(partition) for partition in partitions if partitions.count(partition) > 1})
    if twice:
        raise click.UsageError(f"{option}: {path} names {', '.join(twice)} more than once.")
    return partitions
