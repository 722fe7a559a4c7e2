"""The constructs that put wire types together: structures of fields, structures that may be null, absent fields.

`Structure` is a declaration in one version; codecs are generated from it, and it parses and builds by itself as their
reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final

from construct import Construct, Container, Renamed

from triokafka.errors import UnsupportedVersionError
from triokafka.protocol.primitives import Int8
from triokafka.protocol.tagged_fields import TaggedFields


class NullableStructure(Construct):  # type: ignore[misc]
    """A structure that may be null: one byte, negative for null (in a tagged field zero), then the structure."""

    min_size: Final = 1

    def __init__(self, structure: Structure, *, tagged: bool = False) -> None:
        super().__init__()
        self.structure = structure
        self.null = 0 if tagged else -1

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> Any:
        if Int8._parse(stream, context, path) <= self.null:
            return None
        return self.structure._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: BinaryIO, context: Any, path: str) -> Any:
        Int8._build(self.null if obj is None else 1, stream, context, path)
        if obj is not None:
            self.structure._build(obj, stream, context, path)
        return obj


class Absent(Construct):  # type: ignore[misc]
    """A field that this version does not carry: reads as its default; refuses to lose any other value."""

    min_size: Final = 0

    def __init__(self, default: object, *, ignorable: bool) -> None:
        super().__init__()
        self.default = default
        self.ignorable = ignorable

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> Any:
        return list(self.default) if isinstance(self.default, (list, tuple)) else self.default

    def _build(self, obj: Any, stream: BinaryIO, context: Any, path: str) -> Any:
        default = list(self.default) if isinstance(self.default, tuple) else self.default
        if obj != default and not self.ignorable:
            raise UnsupportedVersionError(f"this version cannot carry {path}")
        return obj


class Structure(Construct):  # type: ignore[misc]
    """The fields of one declared structure in one version, in order; flexible versions end in tagged fields.

    Parses into a ``Container`` with every field of the declaration (also those that the version lacks, with their
    default) and ``unknown_tags`` where there were any; builds from any mapping. ``factory`` is the declared class.
    """

    def __init__(self, factory: Any, subcons: Iterable[Renamed], tagged: TaggedFields | None) -> None:
        super().__init__()
        self.factory = factory
        self.subcons = list(subcons)
        self.tagged = tagged
        self.min_size: int = sum(s.subcon.min_size for s in self.subcons) + (tagged is not None)

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> Container:
        values = Container()
        for subcon in self.subcons:
            values[subcon.name] = subcon._parsereport(stream, context, path)
        if self.tagged is not None:
            known, unknown = self.tagged._parse(stream, context, path)
            for f in self.tagged.fields.values():
                default = list(f.default) if isinstance(f.default, tuple) else f.default
                values[f.name] = known.get(f.name, default)
            if unknown:
                values["unknown_tags"] = unknown
        return values

    def _build(self, obj: Mapping[str, Any], stream: BinaryIO, context: Any, path: str) -> Any:
        for subcon in self.subcons:
            subcon._build(obj[subcon.name], stream, context, path)
        if self.tagged is not None:
            self.tagged._build((obj, obj.get("unknown_tags", {})), stream, context, path)
        return obj
