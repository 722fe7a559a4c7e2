"""Enumerations of access control lists."""

from __future__ import annotations

from triokafka.security.acl import AclOperation


def test_bits_of_authorized_operations_become_operations() -> None:
    assert AclOperation.of_bits(1 << 3 | 1 << 8) == {AclOperation.READ, AclOperation.DESCRIBE}
    assert AclOperation.of_bits(0) == frozenset()


def test_negative_bits_mean_that_the_broker_did_not_report_operations() -> None:
    assert AclOperation.of_bits(-(2**31)) is None


def test_bits_of_filters_are_no_authorized_operations() -> None:
    """UNKNOWN, ANY and ALL have numbers too, but no broker authorizes them."""
    assert AclOperation.of_bits(0b111) == frozenset()
