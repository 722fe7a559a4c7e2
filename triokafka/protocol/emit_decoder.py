"""Writes the Python source of a decoder from a construct tree.

The decoder of a message is one function, nested loops and all. Runs of fixed-size fields, together with the length that
starts the next field and the count that ends a structure, become one ``struct`` call; attributes are set straight from
it. Every line remembers the field that it reads, so that a failure can be located without slowing down success.
"""

from __future__ import annotations

from struct import calcsize
from typing import Any, Final

from construct import Renamed

from triokafka.named_tuple import NamedTuple
from triokafka.protocol.primitives import (
    NIL_UUID,
    ArrayType,
    BytesType,
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
    """One entry of a run of fixed-size fields: where the value goes, and a line to run once it is there."""

    code: str
    target: str
    path: str
    then: str = ""


_PLACE_IN_LIST: Final = 16  # including the unused capacity of a growing list
_OBJECT_BYTES: Final = 32
_EMPTY_LIST_BYTES: Final = 72
_RAW_TAGS_BYTES: Final = 40
_WIDE_CHARACTER_BYTES: Final = 4


def memory_of(wire: Any) -> int:
    """Estimate the most bytes of a decoded value, without the elements of its arrays and the characters of its text."""
    if isinstance(wire, Renamed):
        wire = wire.subcon
    if isinstance(wire, Number):
        return 0 if wire.code in "bB?" else 32
    if isinstance(wire, Absent):
        return _EMPTY_LIST_BYTES if isinstance(wire.default, (list, tuple, dict)) else 0
    if isinstance(wire, NullableStructure):
        return memory_of(wire.structure)
    if isinstance(wire, Structure):
        parts = [memory_of(subcon) for subcon in wire.subcons]
        if wire.tagged is not None:
            parts += [_RAW_TAGS_BYTES, *(memory_of(f.subcon) for f in wire.tagged.fields.values())]
        return _OBJECT_BYTES + 8 * (len(wire.factory.__fields__) + 1) + sum(parts)
    return next((size for kind, size in _SIZES if isinstance(wire, kind)), 32)


_SIZES: Final = (
    (UuidType, 128),
    (RecordsType, 200),
    (ArrayType, _EMPTY_LIST_BYTES),
    (StringType, 76),
    (BytesType, 40),
)


class DecoderWriter(SourceWriter):
    """Emits the decoder of one construct tree.

    ``view`` chooses the kind of input: a memoryview, or bytes. ``prefix`` allows bytes after the message. ``careful``
    makes ``decode(d, p, room)``: text that is not UTF-8 gets replacement characters, instead of a `UnicodeDecodeError`,
    and ``room[0]``, the bytes of memory that the message may take, is charged for the elements of each array before the
    first of them is made.
    """

    def __init__(self, *, view: bool = False, prefix: bool = False, careful: bool = False) -> None:
        super().__init__()
        self.view = view
        self.prefix = prefix
        self.careful = careful
        self.room = ", room" if careful else ""
        self.run: list[_Fixed] = []
        self.sections: list[tuple[str, Structure, str]] = []

    def message(self, structure: Structure, name: str) -> None:
        """The whole module: ``decode(d, p)``, and a function for each tagged section with known fields."""
        self.line(f"def decode(d, p{self.room}):", name)
        with self.indented():
            self.line("end = len(d)", name)
            if not self.view:
                self.line("m = memoryview(d)", name, unless_unused="m[")
            self.structure(structure, "o", name)
            self.flush()
            if not self.prefix:
                self.line("if p != end: raise Malformed('%d bytes too many' % (end - p))", name)
            self.line("return o", name)
        while self.sections:
            self.tag_section(*self.sections.pop())

    def values(self, structure: Structure, name: str) -> None:
        """As `message`, but ``decode(d, p)`` returns a tuple of the declared fields, and makes no object.

        Tagged fields other than a lone one of fixed size are left to ``decode_tagged(d, start)``, for the caller to
        provide.
        """
        self.line("def decode(d, p):", name)
        with self.indented():
            self.line("start = p; end = len(d)", name)
            for subcon in structure.subcons:
                self.value(subcon, f"v_{subcon.name}", f"{name}.{subcon.name}")
            if structure.tagged is not None:
                self.fixed("B", "t", name)
                self.flush()
                self.line("if not t:", name)
                with self.indented():
                    for f in structure.tagged.fields.values():
                        self.default(f.default, f"v_{f.name}", f"{name}.{f.name}")
                    if not structure.tagged.fields:
                        self.line("pass", name)
                found = structure.tagged.lone_fixed()
                if found is not None:
                    f, begin, _ = found
                    self.line(f"elif d[p - 1:p + {len(begin) - 1}] == {begin!r}:", name)
                    with self.indented():
                        self.line(f"p += {len(begin) - 1}", name)
                        self.value(f.subcon, f"v_{f.name}", f"{name}.{f.name}")
                        self.flush()
                self.line("else: return decode_tagged(d, start)", name)
            self.flush()
            self.line("if p != end: raise Malformed('%d bytes too many' % (end - p))", name)
            self.line(f"return ({', '.join(f'v_{f.name}' for f in structure.factory.__fields__)},)", name)

    # Runs of fixed-size fields

    def fixed(self, code: str, target: str, path: str, then: str = "") -> None:
        self.run.append(_Fixed(code, target, path, then))

    def flush(self) -> None:
        """Read the fields collected so far."""
        run, self.run = self.run, []
        if not run:
            return
        layout = [(entry.path, calcsize(">" + entry.code)) for entry in run]
        path = run[0].path
        if [entry.code for entry in run] == ["B"]:
            self.line(f"{run[0].target} = d[p]; p += 1", path, layout)
        else:
            codes = "".join(entry.code for entry in run)
            targets = ", ".join(entry.target for entry in run) + ("," if len(run) == 1 else "")
            self.line(f"{targets} = {self.struct(codes)}_unpack(d, p); p += {calcsize('>' + codes)}", path, layout)
        for entry in run:
            if entry.then:
                self.line(entry.then, entry.path)

    # Types

    def value(self, wire: Any, target: str, path: str) -> None:
        """Read one value into ``target``, an attribute or a local name."""
        if isinstance(wire, Renamed):
            wire = wire.subcon
        if isinstance(wire, Number):
            self.fixed(wire.code, target, path)
        elif isinstance(wire, UuidType):
            self.fixed("16s", raw := self.name("u"), path, f"{target} = NIL if {raw} == NIL_BYTES else uuid_of({raw})")
        elif isinstance(wire, Absent):
            self.default(wire.default, target, path)
        elif isinstance(wire, LengthPrefixed):
            self.length_prefixed(wire, target, path)
        elif isinstance(wire, NullableStructure):
            self.fixed("b", flag := self.name("n"), path)
            self.flush()
            self.line(f"if {flag} <= {wire.null}: {target} = None", path)
            self.line("else:", path)
            with self.indented():
                self.structure(wire.structure, inner := self.name("o"), path)
                self.flush()
                self.line(f"{target} = {inner}", path)
        elif isinstance(wire, Structure):
            self.structure(wire, inner := self.name("o"), path)
            self.line(f"{target} = {inner}", path)
        elif isinstance(wire, UVarIntType):
            self.flush()
            self.line(f"{target}, p = read_uvarint(d, p)", path)
        elif isinstance(wire, VarIntType):
            self.flush()
            self.line(f"{target}, p = read_zigzag(d, p, {wire.bits})", path)
        else:
            raise TypeError(f"no decoder for {wire!r}")

    def default(self, default: Any, target: str, path: str) -> None:
        """Give a field that is not on the wire its default."""
        if isinstance(default, (list, tuple)):
            self.line(f"{target} = []", path)
        elif isinstance(default, dict):
            raise TypeError("a structure's default is made by its factory")
        elif default == NIL_UUID:
            self.line(f"{target} = NIL", path)
        else:
            self.line(f"{target} = {default!r}", path)

    def length_prefixed(self, wire: LengthPrefixed, target: str, path: str) -> None:
        n = self.name("n")
        self.fixed("B" if wire.compact else wire.code, n, path)
        self.flush()
        if wire.compact:
            read = "read_string_length" if isinstance(wire, StringType) else "read_uvarint"
            self.line(f"if {n} > 127: {n}, p = {read}(d, p - 1)", path)
            size, is_null = f"{n} - 1", f"not {n}"
        else:
            size, is_null = n, f"{n} == -1"
        if isinstance(wire, ArrayType):
            self.array(wire, target, path, n)
            return
        bad = f"e > end or {n} < 0" if not wire.compact else "e > end"
        if wire.nullable:
            self.line(f"if {is_null}: {target} = None", path)
            self.line("else:", path)
        else:
            bad = f"e > end or {n} < {int(wire.compact)}"
        with self.indented(wire.nullable):
            self.line(f"e = p + {size}", path)
            self.line(f"if {bad}: raise bad_length({size}, end - p)", path)
            if self.careful and isinstance(wire, BytesType) and not isinstance(wire, RecordsType):
                self.line(f"room[0] -= {size}", path)  # a copy of very much would hold the interpreter for long
                self.line("if room[0] < 0: raise too_much_memory(1)", path)
            self.line(f"{target} = {self.slice(wire)}; p = e", path)
            if self.careful and isinstance(wire, StringType):
                # One character that is not Latin makes each of the others take two or four bytes.
                self.line(f"if not {target}.isascii():", path)
                with self.indented():
                    self.line(f"room[0] -= {_WIDE_CHARACTER_BYTES} * len({target})", path)
                    self.line("if room[0] < 0: raise too_much_memory(1)", path)

    def slice(self, wire: LengthPrefixed) -> str:
        """The expression for the bytes between ``p`` and ``e`` as the type wants them."""
        if isinstance(wire, StringType):
            if self.careful:
                return "str(d[p:e], 'utf-8', 'replace')"
            return "str(d[p:e], 'utf-8')" if self.view else "d[p:e].decode()"
        if isinstance(wire, RecordsType):
            return "d[p:e]" if self.view else "m[p:e]"
        assert isinstance(wire, BytesType)
        return "bytes(d[p:e])" if self.view else "d[p:e]"

    def array(self, wire: ArrayType, target: str, path: str, n: str) -> None:
        """Emit the check of a count, in ``n``, against the bytes that are left, before any element is made."""
        element = wire.element
        self.line(f"if {n} > {int(wire.compact)}:", path)
        with self.indented():
            if wire.compact:
                self.line(f"{n} -= 1", path)
            if isinstance(element, Number):
                size = calcsize(">" + element.code)
                self.line(f"e = p + {n} * {size}" if size > 1 else f"e = p + {n}", path)
                self.line(f"if e > end: raise bad_length({n}, end - p)", path)
                self.charge(element, n, path)
                unpack = self.array_packers(element.code)
                self.line(f"{target} = list(({unpack}_get({n}) or {unpack}.make_unpack({n}))(d, p)); p = e", path)
            else:
                smallest = max(element.min_size, 1)
                needed = n if smallest == 1 else f"{n} * {smallest}"
                self.line(f"if {needed} > end - p: raise bad_length({n}, end - p)", path)
                self.charge(element, n, path)
                items, item = self.name("a"), self.name("i")
                self.line(f"{target} = {items} = []; {items}_add = {items}.append", path)
                self.line(f"for _ in range({n}):", path)
                with self.indented():
                    if isinstance(element, Structure):
                        self.structure(element, item, path)
                    else:
                        self.value(element, item, path)
                    self.flush()
                    self.line(f"{items}_add({item})", path)
        self.line(f"elif {n} == {int(wire.compact)}: {target} = []", path)
        null = f"{target} = None" if wire.nullable else f"raise bad_length({n}, end - p)"
        if wire.compact:
            self.line(f"else: {null}" if wire.nullable else "else: raise bad_length(-1, end - p)", path)
        else:
            if wire.nullable:
                self.line(f"elif {n} == -1: {null}", path)
            self.line(f"else: raise bad_length({n}, end - p)", path)

    def charge(self, element: Any, n: str, path: str) -> None:
        """Refuse an array that would take more memory than is left."""
        if self.careful:
            self.line(f"room[0] -= {n} * {memory_of(element) + _PLACE_IN_LIST}", path)
            self.line(f"if room[0] < 0: raise too_much_memory({n})", path)

    # Structures and their tagged sections

    def structure(self, structure: Structure, o: str, path: str) -> None:
        """Read a structure into a new object named ``o``."""
        self.line(f"{o} = new({self.factory(structure)})", path)
        for subcon in structure.subcons:
            inner = f"{path}.{subcon.name}"
            if isinstance(subcon.subcon, Absent) and isinstance(subcon.subcon.default, dict):
                self.line(f"{o}.{subcon.name} = {self.default_structure(structure, subcon.name)}", inner)
            else:
                self.value(subcon, f"{o}.{subcon.name}", inner)
        if structure.tagged is None:
            self.line(f"{o}._unknown_tags = None", path)
            return
        t = self.name("t")
        self.fixed("B", t, path)
        self.flush()
        if not structure.tagged.fields:
            self.line(f"if {t}: {o}._unknown_tags, p = read_unknown_tags(d, p - 1, end)", path)
            self.line(f"else: {o}._unknown_tags = None", path)
            return
        section = self.name("tags_")
        self.sections.append((section, structure, path))
        self.line(f"if {t}: p = {section}(d, p - 1, end, {o}{self.room})", path)
        self.line("else:", path)
        with self.indented():
            self.line(f"{o}._unknown_tags = None", path)
            self.tagged_defaults(structure, structure.tagged, o, path)

    def tagged_defaults(self, structure: Structure, tagged: TaggedFields, o: str, path: str) -> None:
        for f in tagged.fields.values():
            target = f"{o}.{f.name}"
            if isinstance(f.default, dict):
                self.line(f"{target} = {self.default_structure(structure, f.name)}", f"{path}.{f.name}")
            else:
                self.default(f.default, target, f"{path}.{f.name}")

    def tag_section(self, section: str, structure: Structure, path: str) -> None:
        """The function that reads a section that has known fields: those into ``o``, the rest as raw bytes."""
        tagged = structure.tagged
        assert tagged is not None
        self.line(f"def {section}(d, p, end, o{self.room}):", path)
        with self.indented():
            self.lone_tag(tagged, path)
            self.tagged_defaults(structure, tagged, "o", path)
            self.line("count, p = read_uvarint(d, p)", path)
            self.line("if count * 2 > end - p: raise bad_length(count, end - p)", path)
            self.line("unknown = bytearray()", path)
            self.line("for _ in range(count):", path)
            with self.indented():
                self.line("start = p", path)
                self.line("tag, p = read_uvarint(d, p)", path)
                self.line("size, p = read_uvarint(d, p)", path)
                self.line("stop = p + size", path)
                self.line("if stop > end: raise bad_length(size, end - p)", path)
                word = "if"
                for f in tagged.fields.values():
                    self.line(f"{word} tag == {f.tag}:", path)
                    word = "elif"
                    with self.indented():
                        self.value(f.subcon, f"o.{f.name}", f"{path}.{f.name}")
                        self.flush()
                        self.line("check_size(p, stop)", f"{path}.{f.name}")
                self.line("else: unknown += d[start:stop]; p = stop", path)
            self.line("o._unknown_tags = bytes(unknown) or None", path)
            self.line("return p", path)

    def lone_tag(self, tagged: TaggedFields, path: str) -> None:
        """A short cut for the section that is nearly always there: the only known field, of fixed size, alone."""
        found = tagged.lone_fixed()
        if found is None:
            return
        f, start, size = found
        self.line(f"if d[p:p + {len(start)}] == {start!r} and p + {len(start) + size} <= end:", path)
        with self.indented():
            self.line(f"p += {len(start)}", path)
            self.value(f.subcon, f"o.{f.name}", f"{path}.{f.name}")
            self.flush()
            self.line("o._unknown_tags = None", path)
            self.line("return p", path)
