"""The initial offsets of a query: the one-line file that the connector stores as ``sources/0/0`` in a checkpoint.

A query that fails in its first batch repeats that batch; only this file has the offsets that "latest" meant. The file
is a zero byte, ``v1`` and the offsets as JSON; the byte is for readers before Spark 2.1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from triokafka.errors import ConfigurationError, KafkaError
from triokafka.spark.planning.bounds import Offsets
from triokafka.spark.planning.offsets_json import format_offsets, parse_offsets
from triokafka.structs import TopicPartition

VERSION: Final = 1


def encode_initial_offsets(offsets: Offsets) -> bytes:
    """Return the contents of the file."""
    return b"\0v%d\n%s" % (VERSION, format_offsets(offsets).encode())


def decode_initial_offsets(content: bytes) -> dict[TopicPartition, int]:
    """Return the offsets in the file. Spark 2.1.0 wrote another byte and no version.

    Raises:
        ConfigurationError: the file has a newer version, or is malformed.
    """
    text = content.decode("utf-8", errors="replace")
    if text.startswith("\0v"):
        version, _, offsets = text[1:].partition("\n")
        number = version[1:].strip()
        if not re.fullmatch("[0-9]{1,9}", number) or int(number) == 0:
            raise ConfigurationError(f"Log file was malformed: failed to read correct log version from {version}.")
        if int(number) > VERSION:
            raise ConfigurationError(
                f"UnsupportedLogVersion: maximum supported log version is v{VERSION}, but encountered v{number}. The"
                " log file was produced by a newer version and cannot be read by this one"
            )
        return parse_offsets(offsets.strip())
    return parse_offsets(text[max(0, text.find("{")) :].strip())


def load_initial_offsets(path: str) -> dict[TopicPartition, int] | None:
    """Return the offsets in the file, or None if it does not exist. ``path`` is local or an address for pyarrow (s3,
    gs, hdfs).

    Raises:
        ConfigurationError: the file is malformed.
        KafkaError: the file cannot be read.
    """
    from pyarrow import fs

    with _told_of(path, "read"):
        system, inside = fs.FileSystem.from_uri(_address(path))
        if system.get_file_info(inside).type == fs.FileType.NotFound:
            return None
        with system.open_input_stream(inside) as file:
            content = file.read()
    try:
        return decode_initial_offsets(content)
    except ConfigurationError as error:
        raise ConfigurationError(f"the file of option 'initialOffsetsPath', {path}, cannot be used: {error}") from None


def store_initial_offsets(path: str, offsets: Offsets) -> None:
    """Write the file atomically, and create its directory.

    Raises:
        KafkaError: the file cannot be written.
    """
    from pyarrow import fs

    with _told_of(path, "written"):
        system, inside = fs.FileSystem.from_uri(_address(path))
        directory, _, name = inside.rpartition("/")
        system.create_dir(directory, recursive=True)
        # A temporary file with a leading dot, like Spark's: listings skip it.
        temporary = f"{directory}/.{name}.tmp"
        with system.open_output_stream(temporary) as file:
            file.write(encode_initial_offsets(offsets))
        system.move(temporary, inside)


@contextmanager
def _told_of(path: str, done: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: an address that pyarrow does not support
        raise KafkaError(f"the file of option 'initialOffsetsPath', {path}, cannot be {done}: {error}") from error


def _address(path: str) -> str:
    import os

    return path if "://" in path else os.path.abspath(path.removeprefix("file:"))
