"""Writes the Python source of an encoder from a construct tree.

The encoder of a message is one function that appends pieces of bytes to a list. Runs of fixed-size fields, with the
length that follows them and the empty tagged section that ends a structure, become one ``struct`` call. A small piece
takes many times its size in memory, so long arrays join their pieces every few thousand. Fields that the version lacks
are checked first: an encoder never loses a value silently.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from construct import Renamed

from triokafka.named_tuple import NamedTuple
from triokafka.protocol.primitives import (
    NIL_UUID,
    ArrayType,
    LengthPrefixed,
    Number,
    RecordsType,
    StringType,
    UuidType,
    UVarIntType,
    VarIntType,
)
from triokafka.protocol.source import SourceWriter
from triokafka.protocol.structures import Absent, NullableStructure, Structure
from triokafka.protocol.tagged_fields import TaggedFields


class _Fixed(NamedTuple):
    code: str
    expression: str
    path: str


class EncoderWriter(SourceWriter):
    """Emits the encoder of one construct tree."""

    def __init__(self) -> None:
        super().__init__()
        self.by_value = False
        self.run: list[_Fixed] = []
        self.sections: list[tuple[str, Structure, TaggedFields, str]] = []

    def message(self, structure: Structure, name: str) -> None:
        """The whole module: ``encode(o, out, marks)``, and a function for each tagged section with known fields."""
        self.line("def encode(o, out, marks):", name)
        with self.indented():
            self.line("w = out.append", name)
            self.structure(structure, "o", name)
            self.flush()
        while self.sections:
            self.tag_section(*self.sections.pop())

    def values(self, structure: Structure, name: str) -> None:
        """As `message`, but ``o`` is a sequence of the declared fields in the place of an object.

        Raises:
            TypeError: the message has tagged fields other than a lone one of fixed size.
        """
        self.by_value = True
        self.line("def encode(o, out, marks):", name)
        with self.indented():
            self.line("w = out.append", name)
            self.line(f"{', '.join(self.member('o', f.name) for f in structure.factory.__fields__)}, = o", name)
            self.structure(structure, "o", name)
            self.flush()

    def member(self, o: str, name: str) -> str:
        """The expression for a field of the structure named ``o``."""
        return f"v_{name}" if self.by_value and o == "o" else f"{o}.{name}"

    # Runs of fixed-size fields

    def fixed(self, code: str, expression: str, path: str) -> None:
        self.run.append(_Fixed(code, expression, path))

    def flush(self, *more: _Fixed, keep: bool = False) -> None:
        """Write the fields collected so far, and ``more``; ``keep`` leaves them collected for another branch."""
        run = [*self.run, *more]
        if not keep:
            self.run = []
        if not run:
            return
        codes = "".join(entry.code for entry in run)
        arguments = ", ".join(entry.expression for entry in run if entry.code != "x")
        parts = [(entry.path, (entry.code, entry.expression)) for entry in run]
        if codes == "x":
            self.line("w(b'\\0')", run[0].path)
        else:
            self.line(f"w({self.struct(codes)}_pack({arguments}))", run[0].path, parts)

    def length(self, wire: LengthPrefixed, count: str, path: str) -> None:
        """Write the collected run and a length (``count`` is a name, or -1 for null; compact: 0 for null, else + 1)."""
        if not wire.compact:
            self.flush(_Fixed(wire.code, count, path), keep=True)
            return
        write = "write_string_length" if isinstance(wire, StringType) else "write_uvarint"
        if self.run:
            self.line(f"if {count} < 128:", path)
            with self.indented():
                self.flush(_Fixed("B", count, path), keep=True)
            self.line("else:", path)
            with self.indented():
                self.flush(keep=True)
                self.line(f"w({write}({count}))", path)
        else:
            self.line(f"w(ONE_BYTE[{count}] if {count} < 128 else {write}({count}))", path)

    # Types

    def value(self, wire: Any, source: str, path: str) -> None:
        """Write the value of an expression."""
        if isinstance(wire, Renamed):
            wire = wire.subcon
        if isinstance(wire, Number):
            self.fixed(wire.code, source, path)
        elif isinstance(wire, UuidType):
            self.fixed("16s", f"{source}.int.to_bytes(16, 'big')", path)
        elif isinstance(wire, Absent):
            pass  # checked on entry to the structure
        elif isinstance(wire, LengthPrefixed):
            self.length_prefixed(wire, source, path)
        elif isinstance(wire, NullableStructure):
            self.line(f"if ({(inner := self.name('o'))} := {source}) is None:", path)
            with self.indented():
                self.flush(_Fixed("b", str(wire.null), path), keep=True)
            self.line("else:", path)
            with self.indented():
                self.fixed("b", "1", path)
                self.structure(wire.structure, inner, path)
                self.flush()
        elif isinstance(wire, Structure):
            self.line(f"{(inner := self.name('o'))} = {source}", path)
            self.structure(wire, inner, path)
        elif isinstance(wire, UVarIntType):
            self.flush()
            self.line(f"w(write_uvarint({source}))", path)
        elif isinstance(wire, VarIntType):
            self.flush()
            self.line(f"w(write_zigzag({source}, {wire.bits}))", path)
        else:
            raise TypeError(f"no encoder for {wire!r}")

    def length_prefixed(self, wire: LengthPrefixed, source: str, path: str) -> None:
        data, n = self.name("s"), self.name("n")
        one_more = " + 1" if wire.compact else ""
        encode = ".encode()" if isinstance(wire, StringType) else ""
        if not wire.nullable:
            self.line(f"{data} = {source}{encode}; {n} = len({data}){one_more}", path)
            self.length(wire, n, path)
            self.content(wire, data, path)
        else:
            self.line(f"if ({data} := {source}) is None:", path)
            with self.indented():
                self.flush(_Fixed("x", "", path) if wire.compact else _Fixed(wire.code, "-1", path), keep=True)
            self.line("else:", path)
            with self.indented():
                assign = f"{data} = {data}{encode}; " if encode else ""
                self.line(f"{assign}{n} = len({data}){one_more}", path)
                self.length(wire, n, path)
                self.content(wire, data, path)
        self.run = []

    def content(self, wire: LengthPrefixed, data: str, path: str) -> None:
        """Emit the code for the content after the length."""
        kept, self.run = self.run, []
        if isinstance(wire, ArrayType):
            element = wire.element
            if isinstance(element, Number):
                pack = self.array_packers(element.code)
                n = f"len({data})"
                self.line(f"if {data}: w(({pack}_pget({n}) or {pack}.make_pack({n}))(*{data}))", path)
            else:
                item = self.name("i")
                portions = f"{data} if len({data}) <= FEW_ELEMENTS else in_portions({data}, out, marks)"
                self.line(f"for {item} in {portions}:", path)
                with self.indented():
                    if isinstance(element, Structure):
                        self.structure(element, item, path)
                    else:
                        self.value(element, item, path)
                    self.flush()
        elif isinstance(wire, RecordsType):
            self.line(f"marks.append(len(out)); w({data})", path)
        else:
            self.line(f"w({data})", path)
        self.run = kept

    # Structures and their tagged sections

    def structure(self, structure: Structure, o: str, path: str) -> None:
        """Write the fields of the object named ``o``."""
        for subcon in structure.subcons:
            if isinstance(subcon.subcon, Absent) and not subcon.subcon.ignorable:
                inner = f"{path}.{subcon.name}"
                condition = self.differs(structure.factory, subcon.name, subcon.subcon.default, o)
                self.line(f"if {condition}: raise NotInVersion({inner!r})", inner)
        for subcon in structure.subcons:
            self.value(subcon, self.member(o, subcon.name), f"{path}.{subcon.name}")
        if structure.tagged is None:
            return
        if self.by_value and o == "o":
            self.tags_by_value(structure, structure.tagged, path)
            return
        conditions = [self.differs(structure.factory, f.name, f.default, o) for f in structure.tagged.fields.values()]
        self.line(f"if {' or '.join([*conditions, f'{o}._unknown_tags'])}:", path)
        with self.indented():
            self.flush(keep=True)
            if conditions:
                section = self.name("tags_")
                self.sections.append((section, structure, structure.tagged, path))
                self.line(f"w({section}({o}))", path)
            else:
                self.line(f"w(tag_section({o}.unknown_tags, {{}}))", path)
        self.line("else:", path)
        with self.indented():
            self.flush(_Fixed("x", "", path), keep=True)
        self.run = []

    def tags_by_value(self, structure: Structure, tagged: TaggedFields, path: str) -> None:
        """The section of the message itself, which has no unknown tags."""
        found = tagged.lone_fixed()
        if found is None and tagged.fields:
            raise TypeError(f"{path} has tagged fields that cannot be given by value")
        if found is None:
            self.flush(_Fixed("x", "", path))
            return
        f, begin, _ = found
        self.line(f"if {self.differs(structure.factory, f.name, f.default, 'o')}:", path)
        with self.indented():
            kept = list(self.run)
            self.fixed(f"{len(begin)}s", repr(begin), path)
            self.value(f.subcon, self.member("o", f.name), f"{path}.{f.name}")
            self.flush()
            self.run = kept
        self.line("else:", path)
        with self.indented():
            self.flush(_Fixed("x", "", path))

    def tag_section(self, section: str, structure: Structure, tagged: TaggedFields, path: str) -> None:
        """The function that makes a section with known fields: those that differ from their default."""
        self.line(f"def {section}(o):", path)
        with self.indented():
            self.lone_tag(tagged, path)
            self.line("marks = []; known = {}", path)
            for f in tagged.fields.values():
                inner = f"{path}.{f.name}"
                self.line(f"if {self.differs(structure.factory, f.name, f.default, 'o')}:", inner)
                with self.indented():
                    self.line("out = []; w = out.append", inner)
                    self.value(f.subcon, f"o.{f.name}", inner)
                    self.flush()
                    self.line(f"known[{f.tag}] = b''.join(out)", inner)
            self.line("return tag_section(o.unknown_tags, known)", path)

    def lone_tag(self, tagged: TaggedFields, path: str) -> None:
        """A short cut for a section of which the only known field has a fixed size: it is why there is a section."""
        found = tagged.lone_fixed()
        if found is None:
            return
        f, start, _ = found
        self.line("if not o._unknown_tags:", path)
        with self.indented():
            self.fixed(f"{len(start)}s", repr(start), path)
            self.value(f.subcon, f"o.{f.name}", f"{path}.{f.name}")
            run, self.run = self.run, []
            codes = "".join(entry.code for entry in run)
            parts = [(entry.path, (entry.code, entry.expression)) for entry in run]
            arguments = ", ".join(entry.expression for entry in run)
            self.line(f"return {self.struct(codes)}_pack({arguments})", f"{path}.{f.name}", parts)

    def differs(self, factory: Any, name: str, default: Any, o: str) -> str:
        """The condition under which a field of a declared class is not its default."""
        value = self.member(o, name)
        if default is None:
            return f"{value} is not None"
        if isinstance(default, (list, tuple)):
            return f"({value} or {value} is None)"
        if isinstance(default, UUID):
            assert default == NIL_UUID
            # Comparing ids is a Python call; most are the shared nil.
            return f"({value} is not NIL and ({value} is None or {value}.int))"
        if isinstance(default, dict):
            declared = next(f for f in factory.__fields__ if f.name == name)
            alias = self.name("c")
            parts = [f"({alias} := {value}) is None"]
            for f in declared.struct.__fields__:
                parts.append(self.differs(declared.struct, f.name, f.plain_default(), alias))
            return f"({' or '.join([*parts, f'{alias}._unknown_tags'])})"
        return f"{value} != {default!r}"
