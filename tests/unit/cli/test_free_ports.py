"""Ports for nodes that must be known before the nodes start."""

from __future__ import annotations

import socket

import pytest

from triokafka.cli.cluster.free_ports import free_ports


def test_ports_are_different_free_and_below_those_of_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(10_000 <= port < 32_768 for port in ports)
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_excluded_ports_are_not_chosen() -> None:
    with pytest.raises(OSError, match=r"no 1 ports of .* are free"):
        free_ports(1, without=range(10_000, 32_768))
