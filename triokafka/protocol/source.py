"""Python source that is being written line by line, with the field that each line stands for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct as Packer
from typing import Any

from triokafka.named_tuple import NamedTuple
from triokafka.protocol import codec_runtime, tagged_fields
from triokafka.protocol.primitives import NIL_UUID
from triokafka.protocol.structures import Structure


class Origin(NamedTuple):
    """The field that a line of generated code reads or writes, with the parts of a fused run in order.

    A decoder's part is ``(path, size)``, an encoder's ``(path, (code, expression))``.
    """

    path: str
    parts: list[tuple[str, Any]]


class SourceWriter:
    """Lines, their origins, and the names that the code needs at run time."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.origins: list[Origin] = []
        self.names: dict[str, Any] = {
            "NIL": NIL_UUID,
            "NIL_BYTES": NIL_UUID.bytes,
            "new": object.__new__,
            "bad_length": bad_length,
            **{name: getattr(codec_runtime, name) for name in _RUNTIME},
            **{name: getattr(tagged_fields, name) for name in _OF_TAGS},
        }
        self._depth = 0
        self._count = 0
        self._optional: list[tuple[int, str]] = []

    def name(self, prefix: str) -> str:
        """A name that nothing else has."""
        self._count += 1
        return f"{prefix}{self._count}"

    def line(self, text: str, path: str, parts: list[tuple[str, Any]] | None = None, unless_unused: str = "") -> None:
        """Add a line; with ``unless_unused`` it stays only if that text occurs in a later line."""
        if unless_unused:
            self._optional.append((len(self.lines), unless_unused))
        self.lines.append("    " * self._depth + text)
        self.origins.append(Origin(path, parts or []))

    @contextmanager
    def indented(self, really: bool = True) -> Iterator[None]:
        """One level deeper."""
        self._depth += really
        yield
        self._depth -= really

    def struct(self, codes: str) -> str:
        """The name of a packer for these ``struct`` codes."""
        name = "S_" + codes.replace("?", "o")
        if f"{name}_unpack" not in self.names:
            packer = Packer(">" + codes)
            self.names[f"{name}_unpack"] = packer.unpack_from
            self.names[f"{name}_pack"] = packer.pack
        return name

    def array_packers(self, code: str) -> str:
        """The name of the packers for arrays of one number type; ``…_get`` and ``…_pget`` look up a count."""
        name = "A_" + code.replace("?", "o")
        packers = codec_runtime.ARRAYS[code]
        self.names[name] = packers
        self.names[f"{name}_get"] = packers.unpack.get
        self.names[f"{name}_pget"] = packers.pack.get
        return name

    def factory(self, structure: Structure) -> str:
        """The name of the class that the structure declares."""
        self.names[structure.factory.__name__] = structure.factory
        return str(structure.factory.__name__)

    def default_structure(self, structure: Structure, field: str) -> str:
        """An expression for the default of a field that holds a structure."""
        name = f"default_{structure.factory.__name__}_{field}"
        declared = next(f for f in structure.factory.__fields__ if f.name == field)
        shared = declared.type.shared_default()
        self.names[name] = declared.default if shared is None else shared
        return f"{name}()" if shared is None else name

    def text(self) -> str:
        """The source. Lines that turned out to be unused are blank, so that line numbers and origins agree."""
        for index, needle in self._optional:
            if not any(needle in line for line in self.lines[index + 1 :]):
                self.lines[index] = ""
        return "\n".join(self.lines) + "\n"


_RUNTIME = (
    "FEW_ELEMENTS", "Malformed", "NotInVersion", "ONE_BYTE", "in_portions", "read_string_length", "read_uvarint",
    "read_zigzag", "too_much_memory", "uuid_of", "write_string_length", "write_uvarint", "write_zigzag",
)  # fmt: skip
_OF_TAGS = ("check_size", "read_unknown_tags", "tag_section")


def bad_length(length: int, left: int) -> codec_runtime.Malformed:
    """Return the error for a length or count that cannot be read."""
    if length == -1:
        return codec_runtime.Malformed("null where it is not allowed")
    if length < 0:
        return codec_runtime.Malformed(f"negative length {length}")
    return codec_runtime.Malformed(f"length {length} is more than the {left} bytes left")
