"""The controller mutation quota: charges a client for the partitions that its request creates or deletes."""

from __future__ import annotations

from collections.abc import Callable

MutationCharge = Callable[[int], None]
"""Charges a client for a number of partitions about to be created or deleted (KIP-599).

Raises `ThrottlingQuotaExceededError` if the client's quota is exhausted and the request must be rejected.
"""


def no_charge(partitions: int) -> None:
    """Charge nothing: the change has no quota."""
