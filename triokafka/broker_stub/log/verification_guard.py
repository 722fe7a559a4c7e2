"""Verification of transactional appends (KIP-890): a producer's first batch in a partition needs a guard.

The broker begins a verification, asks the transaction coordinator whether the partition takes part in the transaction,
and appends the batch with the guard. If the transaction ends meanwhile, its marker removes the verification, and a
batch that arrives late no longer has a valid guard: it cannot begin a transaction that would never end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


class VerificationGuard:
    """Proof that a verification was begun; compared by identity."""

    __slots__ = ()


UNVERIFIED_ALLOWED: Final = VerificationGuard()
"""The guard with which any batch may be appended: ``transaction.partition.verification.enable`` is off, or the caller
has its own proof."""


@dataclass(slots=True)
class Verification:
    """A verification in progress for one producer.

    ``lowest_sequence`` is the lowest sequence number that any waiting request has: a later one must not begin the
    transaction. ``bumps_epochs``: the client uses transaction version 2, under which a producer always begins with
    sequence 0.
    """

    epoch: int
    lowest_sequence: int
    bumps_epochs: bool
    begun_ms: int
    guard: VerificationGuard = field(default_factory=VerificationGuard)
