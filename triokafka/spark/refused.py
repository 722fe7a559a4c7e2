"""A streaming reader whose options were refused: it says so when it is first asked for offsets.

The process that Spark plans a query in cannot bear that making the reader fails: it then ends with an error of its own
(``UnboundLocalError``), behind the one that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from triokafka.errors import KafkaError


class RefusedStreamReader(DataSourceStreamReader):  # type: ignore[misc] # pyspark has no types here
    """Raises ``why`` whatever it is asked."""

    def __init__(self, why: KafkaError) -> None:
        self._why = why.with_traceback(None)

    def initialOffset(self) -> dict[str, Any]:
        """Raises."""
        self._raise()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Raises."""
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raises."""
        self._raise()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raises."""
        self._raise()

    def _raise(self) -> NoReturn:
        raise self._why
