"""A streaming reader for invalid options, which raises its error when Spark first asks for offsets.

Spark's planning process cannot handle an error in the reader's constructor: it ends with an error of its own
(``UnboundLocalError``), which hides the original one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from triokafka.errors import KafkaError


class RefusedStreamReader(DataSourceStreamReader):  # type: ignore[misc] # pyspark has no types here
    """Raises ``why`` from every method."""

    def __init__(self, why: KafkaError) -> None:
        self._why = why.with_traceback(None)

    def initialOffset(self) -> dict[str, Any]:
        """Raise the error."""
        self._raise()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Raise the error."""
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raise the error."""
        self._raise()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raise the error."""
        self._raise()

    def _raise(self) -> NoReturn:
        raise self._why
