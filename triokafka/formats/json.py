"""JSON objects into Arrow structs; pyarrow parses many values at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from triokafka.errors import ConfigurationError
from triokafka.formats.decoding import Format, scattered
from triokafka.formats.registry import opened

if TYPE_CHECKING:
    import pyarrow as pa


class JsonFormat(Format):
    """JSON objects with known fields. Other fields are ignored, missing ones are null.

    Args:
        schema: the fields with their types. Dates and timestamps are ISO 8601 strings.
        enveloped: whether each value has a schema registry's envelope; the schema in it is ignored.

    Raises:
        ConfigurationError: a field is a map, a time of day, an interval, or a list of nulls, which the parser does not
            support.
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
        """See `Format.decode`."""
        import pyarrow as pa

        if not self._enveloped:
            return self._parse(payloads)
        groups, errors = opened(payloads)
        positions = sorted(position for group in groups for position in group.positions)
        if not positions:
            return pa.nulls(len(payloads), self.type), errors
        # Restore the original order of the values, which `opened` groups by schema.
        bodies = pa.concat_arrays([group.payloads for group in groups])
        order = sorted(range(len(bodies)), key=[at for group in groups for at in group.positions].__getitem__)
        found, wrong = self._parse(bodies.take(pa.array(order, pa.int64())))
        errors.update({positions[at]: why for at, why in wrong.items()})
        return scattered(found, positions, len(payloads)), errors

    def _parse(self, payloads: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Parse all values at once; if that fails, parse halves, down to the invalid values."""
        import pyarrow as pa

        try:
            return self._parse_all(payloads), {}
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if len(payloads) == 1:
                # The row number refers to the parsed piece and is meaningless to the user.
                return pa.nulls(1, self.type), {0: str(error).splitlines()[0].removesuffix(" in row 0")}
        middle = len(payloads) // 2
        first, wrong = self._parse(payloads.slice(0, middle))
        second, more = self._parse(payloads.slice(middle))
        wrong.update({middle + at: why for at, why in more.items()})
        return pa.concat_arrays([first, second]), wrong

    def _parse_all(self, payloads: pa.Array) -> Any:
        import pyarrow as pa
        import pyarrow.json as pj

        payloads.cast(pa.string())  # raises for invalid UTF-8, which the parser would pass on as invalid strings
        # The reader splits at line ends, which are only white space within JSON.
        lines = [value.replace(b"\n", b" ").replace(b"\r", b" ").strip() for value in payloads.to_pylist()]
        # The parser ignores line ends: it would join two halves of an object from two values, and it stops at a zero
        # byte. If every line begins and ends like an object and the row count matches, each line is one object. The
        # check also avoids a crash of the parser on a lone null.
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
    """Return the type for the parser, which can be cast to ``kind``: the parser reads dates as numbers only."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        raise ConfigurationError(f"field {name!r} is a map, which JSON cannot be read as: use a struct with its names")
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        what = "a time of day" if pa.types.is_time(kind) else "an interval"
        raise ConfigurationError(f"field {name!r} is {what}, which JSON cannot be read as: use a string or a number")
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_parsed(field.type, f"{name}.{field.name}")) for field in kind])
    if pa.types.is_list(kind):
        if _has_void(kind.value_type):
            raise ConfigurationError(f"field {name!r} is an array of nulls: remove it from the schema")
        return pa.list_(kind.value_field.with_type(_as_parsed(kind.value_type, name)))
    return kind


def _has_void(kind: pa.DataType) -> bool:
    """Whether the type contains a null type; pyarrow cannot concatenate lists of those."""
    import pyarrow as pa

    return pa.types.is_null(kind) or (pa.types.is_struct(kind) and any(_has_void(field.type) for field in kind))
