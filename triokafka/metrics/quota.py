"""A bound of a metric."""

from __future__ import annotations


class Quota:
    """An inclusive upper bound. Make it with `upper_bound`."""

    __slots__ = ("bound",)

    def __init__(self, bound: float) -> None:
        self.bound = bound

    @classmethod
    def upper_bound(cls, bound: float) -> Quota:
        """Values up to ``bound`` are acceptable."""
        return cls(bound)

    def acceptable(self, value: float) -> bool:
        """Whether the value is within the bound."""
        return value <= self.bound

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quota):
            return NotImplemented
        return self.bound == other.bound

    def __hash__(self) -> int:
        return hash(self.bound)

    def __repr__(self) -> str:
        return f"upper={self.bound}"
