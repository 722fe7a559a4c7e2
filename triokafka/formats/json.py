"""JSON objects, one in each value, into Arrow structs; parsed by pyarrow, many at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from triokafka.errors import ConfigurationError
from triokafka.formats.decoding import Format, scattered
from triokafka.formats.registry import opened

if TYPE_CHECKING:
    import pyarrow as pa


class JsonFormat(Format):
    """JSON objects with known fields: others are ignored, missing ones are null.

    Args:
        schema: the fields with their types. Dates and timestamps are strings as in ISO 8601.
        enveloped: whether a schema registry's envelope is around each value; its schema is not looked at.

    Raises:
        ConfigurationError: a field is a map, a time of day, an interval, or a list without a type, which the parser
            cannot make of JSON.
    """

    def __init__(self, schema: pa.Schema, *, enveloped: bool = False) -> None:
        import pyarrow as pa

        self._schema = schema
        self._parsed = pa.schema([field.with_type(_as_parsed(field.type, field.name)) for field in schema])
        self._enveloped = enveloped

    @property
    def type(self) -> pa.DataType:
        """A struct of the schema's fields."""
        import pyarrow as pa

        return pa.struct(list(self._schema))

    def decode(self, payloads: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
        """As `Format.decode`."""
        import pyarrow as pa

        if not self._enveloped:
            return self._parse(payloads)
        groups, errors = opened(payloads)
        positions = sorted(position for group in groups for position in group.positions)
        if not positions:
            return pa.nulls(len(payloads), self.type), errors
        # In their order, for which the groups are put together again.
        bodies = pa.concat_arrays([group.payloads for group in groups])
        order = sorted(range(len(bodies)), key=[at for group in groups for at in group.positions].__getitem__)
        found, wrong = self._parse(bodies.take(pa.array(order, pa.int64())))
        errors.update({positions[at]: why for at, why in wrong.items()})
        return scattered(found, positions, len(payloads)), errors

    def _parse(self, payloads: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """All at once; when that fails, in halves, down to the values that are wrong."""
        import pyarrow as pa

        try:
            return self._parse_all(payloads), {}
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if len(payloads) == 1:
                # The row is that of the piece that was parsed, and says nothing.
                return pa.nulls(1, self.type), {0: str(error).splitlines()[0].removesuffix(" in row 0")}
        middle = len(payloads) // 2
        first, wrong = self._parse(payloads.slice(0, middle))
        second, more = self._parse(payloads.slice(middle))
        wrong.update({middle + at: why for at, why in more.items()})
        return pa.concat_arrays([first, second]), wrong

    def _parse_all(self, payloads: pa.Array) -> Any:
        import pyarrow as pa
        import pyarrow.json as pj

        payloads.cast(pa.string())  # raises where bytes are no UTF-8, of which the parser makes strings that are none
        # Line ends inside of JSON are mere white space, and the reader cuts at them.
        lines = [value.replace(b"\n", b" ").replace(b"\r", b" ").strip() for value in payloads.to_pylist()]
        # The parser takes objects as they come, whatever the lines: half of one in each of two values is one to it, and
        # a zero byte the end of all. Lines that begin and end as objects do are one each if there are as many. It also
        # crashes on a lone null.
        if not all(line.startswith(b"{") and line.endswith(b"}") and b"\0" not in line for line in lines):
            raise pa.ArrowInvalid("it is not a JSON object")
        table = pj.read_json(
            pa.BufferReader(b"\n".join(lines)),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 20, sum(map(len, lines)) + len(lines))),
            parse_options=pj.ParseOptions(explicit_schema=self._parsed, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(payloads):
            raise pa.ArrowInvalid(f"it is not one JSON object, but {table.num_rows}")
        return table.combine_chunks().to_struct_array().combine_chunks().cast(self.type)


def _as_parsed(kind: pa.DataType, name: str) -> pa.DataType:
    """The type to parse as, from which there is a cast to the one that is wanted: the parser's dates are numbers."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        raise ConfigurationError(f"field {name!r} is a map, which JSON cannot be read as: use a struct of its names")
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        what = "a time of day" if pa.types.is_time(kind) else "an interval"
        raise ConfigurationError(f"field {name!r} is {what}, which JSON cannot be read as: use a string or a number")
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_parsed(field.type, f"{name}.{field.name}")) for field in kind])
    if pa.types.is_list(kind):
        if _has_void(kind.value_type):
            raise ConfigurationError(f"field {name!r} is an array of nothing but null: leave it out")
        return pa.list_(kind.value_field.with_type(_as_parsed(kind.value_type, name)))
    return kind


def _has_void(kind: pa.DataType) -> bool:
    """Whether there is a type without values, of which pyarrow puts no lists together."""
    import pyarrow as pa

    return pa.types.is_null(kind) or (pa.types.is_struct(kind) and any(_has_void(field.type) for field in kind))
