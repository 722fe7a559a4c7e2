"""The quicker `NamedTuple` makes what `typing.NamedTuple` makes."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from triokafka.named_tuple import NamedTuple

T = TypeVar("T")


class Point(NamedTuple):
    """A place."""

    x: int
    y: int = 2
    name: str | None = None

    @property
    def size(self) -> int:
        """How far it is."""
        return abs(self.x) + abs(self.y)

    def moved(self, by: int) -> Point:
        return self._replace(x=self.x + by)


class Model(typing.NamedTuple):
    """A place."""

    x: int
    y: int = 2
    name: str | None = None

    @property
    def size(self) -> int:
        """How far it is."""
        return abs(self.x) + abs(self.y)

    def moved(self, by: int) -> Model:
        return self._replace(x=self.x + by)


class Nothing(NamedTuple):
    """No field at all."""


class Of(NamedTuple, Generic[T]):
    """A field of any type."""

    item: T


class Shown(NamedTuple):
    """It has a ``__repr__`` of its own."""

    secret: str

    def __repr__(self) -> str:
        return "***"


class Further(Point):
    """A class below one with fields."""


BOTH = pytest.mark.parametrize("made", [Point, Model])


def outcome(call: Callable[[], Any]) -> object:
    try:
        return call()
    except Exception as error:
        return type(error), str(error).replace("Model", "Point")


@pytest.mark.parametrize(
    "what",
    [
        lambda made: tuple(made(1)),
        lambda made: tuple(made(1, name="n")),
        lambda made: made(),
        lambda made: made(1, 2, "n", 4),
        lambda made: made(1, z=2),
        lambda made: repr(made(1)).replace("Model", "Point"),
        lambda made: made(1).name,
        lambda made: made(-1).size,
        lambda made: tuple(made(1).moved(2)),
        lambda made: made(1)._asdict(),
        lambda made: tuple(made._make([1, 2, 3])),
        lambda made: made._make([1]),
        lambda made: made(1)._replace(z=2),
        lambda made: made(1) == (1, 2, None),
        lambda made: hash(made(1)),
        lambda made: setattr(made(1), "x", 2),
        lambda made: setattr(made(1), "other", 2),
        lambda made: made._fields,
        lambda made: made._field_defaults,
        lambda made: made.__match_args__,
        lambda made: made.__bases__,
        lambda made: made.__doc__,
        lambda made: made.x.__doc__.replace("item", "field"),
        lambda made: list(made.__annotations__),
        lambda made: list(inspect.signature(made).parameters.values())[1].default,
        lambda made: pickle.loads(pickle.dumps(made(1))) == made(1),
        lambda made: type(copy.deepcopy(made(1))) is made,
    ],
)
def test_class_behaves_like_typings(what: Callable[[Any], object]) -> None:
    assert outcome(lambda: what(Point)) == outcome(lambda: what(Model))


def test_classes_of_as_many_fields_have_their_own_names_and_defaults() -> None:
    class One(NamedTuple):
        a: int
        b: int = 1

    class Two(NamedTuple):
        b: int
        c: int = 2

    assert (One(a=0), Two(b=0)) == ((0, 1), (0, 2))
    assert (repr(One(0)), repr(Two(0))) == ("One(a=0, b=1)", "Two(b=0, c=2)")


def test_patterns_match_by_position_and_name() -> None:
    match Point(1, name="n"):
        case Point(x, name=name):
            assert (x, name) == (1, "n")


def test_other_bases_own_methods_and_classes_below_are_kept() -> None:
    assert Nothing() == ()
    assert Of[int](3).item == 3
    assert repr(Shown("s")) == "***"
    assert repr(Further(1)) == "Further(x=1, y=2, name=None)"
    assert type(Further(1)._replace(x=2)) is Further
