"""A bound of a metric."""

from __future__ import annotations


class Quota:
    """An inclusive upper or lower bound. Make it with `upper_bound` or `lower_bound`."""

    __slots__ = ("bound", "is_upper_bound")

    def __init__(self, bound: float, *, is_upper_bound: bool) -> None:
        self.bound = bound
        self.is_upper_bound = is_upper_bound

    @classmethod
    def upper_bound(cls, bound: float) -> Quota:
        """Values up to ``bound`` are acceptable."""
        return cls(bound, is_upper_bound=True)

    @classmethod
    def lower_bound(cls, bound: float) -> Quota:
        """Values from ``bound`` up are acceptable."""
        return cls(bound, is_upper_bound=False)

    def acceptable(self, value: float) -> bool:
        """Whether the value is within the bound."""
        return value <= self.bound if self.is_upper_bound else value >= self.bound

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quota):
            return NotImplemented
        return self.bound == other.bound and self.is_upper_bound == other.is_upper_bound

    def __hash__(self) -> int:
        return hash((self.bound, self.is_upper_bound))

    def __repr__(self) -> str:
        return f"{'upper' if self.is_upper_bound else 'lower'}={self.bound}"
