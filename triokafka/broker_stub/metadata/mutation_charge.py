"""The quota on changes of the cluster: partitions that a request creates or deletes are charged to its client."""

from __future__ import annotations

from collections.abc import Callable

MutationCharge = Callable[[int], None]
"""Charges a client for a number of partitions about to be created or deleted (KIP-599).

Raises `ThrottlingQuotaExceededError` if the client's quota is used up and the request is to be refused.
"""


def no_charge(partitions: int) -> None:
    """Charge nothing: the change has no quota."""
