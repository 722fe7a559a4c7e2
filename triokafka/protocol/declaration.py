"""How a structure is declared: typed fields with version ranges, turned into a class with slots.

`field` describes one field, `Struct` is the base of every declared structure. Instances are plain objects with slots
and a keyword constructor in which every field has a default. ``structure`` gives the construct of a declaration in one
version. ``message.py`` adds versions and codecs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, Final, Self, cast, dataclass_transform
from uuid import UUID

from triokafka.named_tuple import NamedTuple
from triokafka.protocol import compiler
from triokafka.protocol.primitives import ArrayType
from triokafka.protocol.structures import Absent, NullableStructure, Structure
from triokafka.protocol.tagged_fields import TaggedField, TaggedFields, parse_raw_tags

_ANY_VERSION: Final = 32767
_UNSET: Final[Any] = object()


class VersionRange(NamedTuple):
    """An inclusive range of versions: ``3+`` has the greatest possible end, ``none`` an end below its start."""

    min: int
    max: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self[0] <= version <= self[1]

    def __str__(self) -> str:
        if self.max < self.min:
            return "none"
        if self.max == _ANY_VERSION:
            return f"{self.min}+"
        return str(self.min) if self.min == self.max else f"{self.min}-{self.max}"

    def each(self) -> range:
        """The versions, in order."""
        return range(self.min, self.max + 1)


@cache
def version_range(text: str) -> VersionRange:
    """Read ``"3"``, ``"0-4"``, ``"3+"`` or ``"none"``."""
    if text == "none":
        return VersionRange(0, -1)
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), _ANY_VERSION)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


class Field:
    """One declared field; made by `field`. ``name`` is set by the class that it belongs to."""

    __slots__ = ("_default", "doc", "errors", "ignorable", "name", "nullable", "tag", "type", "versions")

    def __init__(
        self,
        type: Any,
        versions: str,
        nullable: str,
        tag: int | None,
        ignorable: bool,
        default: Any,
        doc: str,
        errors: tuple[str, ...],
    ) -> None:
        self.name = ""
        self.type = type
        self.versions = version_range(versions)
        self.nullable = version_range(nullable)
        self.tag = tag
        self.ignorable = ignorable
        self._default = default
        self.doc = doc
        self.errors = errors

    @property
    def struct(self) -> type[Struct] | None:
        """The structure that the field holds, alone or in an array."""
        inner = self.type.element if isinstance(self.type, ArrayType) else self.type
        return cast("type[Struct]", inner) if isinstance(inner, StructMeta) else None

    @property
    def is_array(self) -> bool:
        """Whether the field is a list."""
        return isinstance(self.type, ArrayType)

    def default(self) -> Any:
        """A new default value: the declared one, or the zero of the type."""
        if self._default is not _UNSET:
            return self._default
        if isinstance(self.type, ArrayType):
            return []
        return self.type() if isinstance(self.type, StructMeta) else self.type.zero

    def plain_default(self) -> Any:
        """The default with a structure as a dict, as constructs see it."""
        default = self.default()
        return default.to_dict() if isinstance(default, Struct) else default

    @property
    def default_is_shared(self) -> bool:
        """Whether all instances can share the default value, because it is immutable."""
        return self._default is not _UNSET or not isinstance(self.type, (ArrayType, StructMeta))


def field(
    type: Any,
    *,
    versions: str = "0+",
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
    default: Any = _UNSET,
    doc: str,
    errors: tuple[str, ...] = (),
) -> Any:
    """Declare a field of a structure.

    Args:
        type: a wire type of ``primitives``, ``Array(…)`` of one, or a structure.
        versions: the message versions that have the field.
        nullable: the versions in which it may be null.
        tag: its number in the tagged section, where all of ``versions`` carry it.
        ignorable: encoding for a version without the field drops the value; otherwise a value other than the default
            raises `UnsupportedVersionError`.
        default: the value when not given; without it the zero of the type.
        doc: the meaning.
        errors: names of the error classes that a value here can cause or, in a response, that it can carry.
    """
    return Field(type, versions, nullable, tag, ignorable, default, doc, errors)


@dataclass_transform(kw_only_default=True, eq_default=True)
class StructMeta(type):
    """Turns the declared fields into slots. Constructors are generated when the first instance is made."""

    __fields__: tuple[Field, ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> StructMeta:
        fields = tuple(value for value in namespace.values() if type(value) is Field)
        names = []
        for key in [key for key, value in namespace.items() if type(value) is Field]:
            namespace.pop(key).name = key
            names.append(key)
        namespace["__slots__"] = (*namespace.get("__slots__", ()), *names)
        inherited = getattr(bases[0], "__fields__", ()) if bases else ()
        namespace["__fields__"] = (*inherited, *fields) if fields else inherited
        return super().__new__(mcs, name, bases, namespace, **kwargs)


class Struct(metaclass=StructMeta):
    """A declared structure: typed slots, a keyword constructor, equality by value, a readable repr.

    ``unknown_tags`` holds tagged fields that the decoded version did not know, by tag; they are written again when the
    object is encoded in a flexible version.
    """

    __slots__ = ("_unknown_tags",)
    __fields__: ClassVar[tuple[Field, ...]]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = compiler.make_constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    @property
    def unknown_tags(self) -> dict[int, bytes]:
        """The data of unknown tagged fields by tag; a change is encoded."""
        tags = cast(Any, self)._unknown_tags
        if isinstance(tags, dict):
            return tags
        # Decoders keep the raw section: an object per tag could cost many times the frame.
        found = parse_raw_tags(tags) if tags else {}
        cast(Any, self)._unknown_tags = found
        return found

    @unknown_tags.setter
    def unknown_tags(self, tags: dict[int, bytes]) -> None:
        cast(Any, self)._unknown_tags = tags

    @classmethod
    def structure(cls, version: int, *, flexible: bool) -> Structure:
        """The construct of this structure inside a message of that version."""
        subcons = []
        tagged = []
        for f in cls.__fields__:
            default = f.plain_default()
            if version not in f.versions:
                subcons.append(f.name / Absent(default, ignorable=f.ignorable))
            elif f.tag is not None:
                tagged.append(TaggedField(f.tag, f.name, _wire(f, version, flexible), default))
            else:
                subcons.append(f.name / _wire(f, version, flexible))
        return Structure(cls, subcons, TaggedFields(tagged) if flexible else None)

    @classmethod
    def shared_default(cls) -> Self | None:
        """The default value as decoders share it: unchangeable, so None if a field of it is a list or a structure.

        An absent tagged structure in every partition of a fetch would else be a new object each.
        """
        return cast("Self | None", _shared_default(cls))

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values: nested structures become dicts; ``unknown_tags`` appears when there are any."""
        plain = {f.name: _plain(getattr(self, f.name)) for f in self.__fields__}
        if self.unknown_tags:
            plain["unknown_tags"] = dict(self.unknown_tags)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Build an object from what `to_dict` gives; absent keys get their default, ids may be strings.

        Raises:
            TypeError: a key that the structure does not have.
        """
        made = cls()
        by_name = {f.name: f for f in cls.__fields__}
        for name, value in plain.items():
            if name == "unknown_tags":
                made.unknown_tags = {int(tag): bytes(data) for tag, data in value.items()}
            elif name in by_name:
                setattr(made, name, _rich(by_name[name], value))
            else:
                raise TypeError(f"{cls.__name__} has no field {name!r}")
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)) and not isinstance(self, type(other)):
            return NotImplemented
        assert isinstance(other, Struct)
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, f.name) == getattr(other, f.name) for f in self.__fields__
        )

    def __repr__(self) -> str:
        shown = [f"{f.name}={getattr(self, f.name)!r}" for f in self.__fields__]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _refuse(self: Struct, name: str, value: object) -> None:
    raise AttributeError(f"this {type(self).__name__} is a default that messages share: assign a new one to the field")


@cache
def _shared_default(cls: type[Struct]) -> Struct | None:
    if not all(f.default_is_shared for f in cls.__fields__):
        return None
    namespace = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, **_FROZEN}
    made = object.__new__(cast("type[Struct]", StructMeta(cls.__name__, (cls,), namespace)))
    for f in cls.__fields__:
        object.__setattr__(made, f.name, f.default())
    object.__setattr__(made, "_unknown_tags", None)
    return made


_FROZEN: Final[dict[str, Any]] = {
    "__setattr__": _refuse,
    "__reduce__": lambda self: (type(self).__base__, ()),
    "unknown_tags": property(lambda self: {}),
}


def _wire(f: Field, version: int, flexible: bool) -> Any:
    nullable = version in f.nullable
    if isinstance(f.type, ArrayType):
        element = f.type.element
        inner = (
            cast("type[Struct]", element).structure(version, flexible=flexible)
            if isinstance(element, StructMeta)
            else element.variant(compact=flexible, nullable=False)
        )
        return f.type.of(inner, compact=flexible, nullable=nullable)
    if isinstance(f.type, StructMeta):
        structure = cast("type[Struct]", f.type).structure(version, flexible=flexible)
        return NullableStructure(structure, tagged=f.tag is not None) if nullable else structure
    return f.type.variant(compact=flexible, nullable=nullable)


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _rich(f: Field, value: Any) -> Any:
    if value is None:
        return None
    if f.is_array:
        element = f.type.element
        return [_rich_one(element, item) for item in value]
    return _rich_one(f.type, value)


def _rich_one(wire: Any, value: Any) -> Any:
    if isinstance(wire, StructMeta):
        return cast("type[Struct]", wire).from_dict(value)
    return UUID(value) if isinstance(wire.zero, UUID) and isinstance(value, str) else value


def iter_structs(cls: type[Struct]) -> Iterator[type[Struct]]:
    """The structures inside ``cls``, outer before inner, each once."""
    seen: list[type[Struct]] = []
    for f in cls.__fields__:
        if f.struct is not None and f.struct not in seen:
            for inner in (f.struct, *iter_structs(f.struct)):
                if inner not in seen:
                    seen.append(inner)
    return iter(seen)
