"""Arrow columns of byte strings in every layout, whole, cut and in chunks, and as other libraries would hand them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

TYPES: tuple[Any, ...] = (
    pa.binary(),
    pa.large_binary(),
    pa.string(),
    pa.large_string(),
    pa.binary_view(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.binary()),
    pa.dictionary(pa.uint16(), pa.large_string()),
    pa.dictionary(pa.int64(), pa.string_view()),
)


class ArrayOnly:
    """An array of a library that offers the C data interface and nothing else."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._array.__arrow_c_array__(requested_schema)


class StreamOnly:
    """A column of a library that offers the C stream interface and nothing else."""

    def __init__(self, column: Any) -> None:
        self._column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])

    def __len__(self) -> int:
        return len(self._column)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self._column.__arrow_c_stream__(requested_schema)


def array_of(contents: Sequence[bytes | None], kind: Any) -> Any:
    """A pyarrow array of that type."""
    if pa.types.is_dictionary(kind):
        entries: list[bytes | None] = list(dict.fromkeys(entry for entry in contents if entry is not None))
        numbers = [None if entry is None else entries.index(entry) for entry in contents]
        return pa.DictionaryArray.from_arrays(pa.array(numbers, kind.index_type), array_of(entries, kind.value_type))
    texts = "string" in str(kind)
    return pa.array([entry.decode() if texts and entry is not None else entry for entry in contents], kind)


def forms(column: Any) -> Iterator[Any]:
    """The same column as pyarrow and other libraries bring it."""
    yield column
    yield StreamOnly(column)
    if not isinstance(column, pa.ChunkedArray):
        yield ArrayOnly(column)


def cut(column: Any, places: Sequence[int]) -> Any:
    """The column in chunks that end at these places."""
    ends = sorted(min(place, len(column)) for place in places)
    starts = [0, *ends]
    return pa.chunked_array(
        [column.slice(start, end - start) for start, end in zip(starts, [*ends, len(column)], strict=True)],
        type=column.type,
    )
