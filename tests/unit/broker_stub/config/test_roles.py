"""process.roles and the options of the quorum are checked together."""

from __future__ import annotations

from typing import Any

import pytest

from triokafka.broker_stub.config import BrokerConfig
from triokafka.errors import ConfigurationError
from triokafka.structs import Node

VOTERS = ("1@a:9093", "2@b:9093", "3@[::1]:9093")
BOTH = ("PLAINTEXT://:9092", "CONTROLLER://:9093")


def test_node_has_both_roles_and_no_controller_listener_by_default() -> None:
    config = BrokerConfig()
    assert config.is_broker
    assert config.is_controller
    assert config.controller_listeners == ()
    assert config.quorum_voters == ()


@pytest.mark.parametrize(
    ("options", "of_broker", "of_controller"),
    [
        ({"listeners": BOTH, "controller_quorum_voters": VOTERS}, ["PLAINTEXT"], ["CONTROLLER"]),
        (
            {"process_roles": ("broker",), "node_id": 4, "controller_quorum_voters": VOTERS},
            ["PLAINTEXT"],
            [],
        ),
        (
            {
                "process_roles": ("controller",),
                "listeners": ("B://:9094", "A://:9093"),
                "controller_listener_names": ("A", "B"),
                "controller_quorum_bootstrap_servers": ("a:9093",),
            },
            [],
            ["A", "B"],
        ),
    ],
)
def test_each_listener_belongs_to_one_role(
    options: dict[str, Any], of_broker: list[str], of_controller: list[str]
) -> None:
    config = BrokerConfig(**options)
    assert [listener.name for listener in config.broker_listeners] == of_broker
    assert [listener.name for listener in config.controller_listeners] == of_controller


def test_voters_and_bootstrap_servers_are_addresses() -> None:
    config = BrokerConfig.from_properties(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.quorum.voters": "1@a:9093,2@[::1]:9094",
            "controller.quorum.bootstrap.servers": "a:1, [::1]:2",
        }
    )
    assert config.quorum_voters == (Node(1, "a", 9093), Node(2, "::1", 9094))
    assert config.quorum_bootstrap_servers == (("a", 1), ("::1", 2))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"process_roles": ()}, r"process\.roles"),
        ({"process_roles": ("broker",)}, r"controller\.quorum\.bootstrap\.servers: name the controllers"),
        ({"process_roles": ("broker",), "listeners": BOTH, "node_id": 4}, "CONTROLLER is a listener of the controller"),
        ({"process_roles": ("broker",), "controller_quorum_voters": VOTERS}, "names this node, 1, which is a broker"),
        (
            {"process_roles": ("controller",), "listeners": BOTH, "controller_quorum_voters": VOTERS},
            "PLAINTEXT is not a listener of the controller",
        ),
        ({"process_roles": ("controller",), "listeners": ()}, r"listeners: has no listener of controller"),
        ({"node_id": 4, "listeners": BOTH, "controller_quorum_voters": VOTERS}, "does not name this node, 4"),
        ({"controller_quorum_voters": VOTERS}, "could not connect to this one"),
        ({"controller_quorum_bootstrap_servers": ("a:1",)}, "could not connect to this one"),
        ({"controller_listener_names": ()}, r"controller\.listener\.names"),
        ({"inter_broker_listener_name": "CONTROLLER", "listeners": BOTH}, "is a listener of the controller"),
        ({"controller_quorum_voters": ("1:a:9093",)}, "'1:a:9093' is not id@host:port"),
        ({"controller_quorum_voters": ("1@a:1", "1@b:2")}, "two voters have the id 1"),
        ({"controller_quorum_bootstrap_servers": ("a",)}, "'a' is not host:port"),
        (
            {"listeners": ("SASL_SSL://:9092", "CONTROLLER://:9093"), "controller_quorum_voters": VOTERS},
            "CONTROLLER has no entry in listener.security.protocol.map",
        ),
        (
            {
                "listeners": ("IN://:9092", "CONTROLLER://:9093"),
                "listener_security_protocol_map": ("IN:SSL",),
                "controller_quorum_voters": VOTERS,
            },
            "CONTROLLER has no entry in listener.security.protocol.map",
        ),
        (
            {
                "process_roles": ("broker",),
                "node_id": 4,
                "listeners": ("SSL://:9092",),
                "controller_quorum_voters": VOTERS,
            },
            "CONTROLLER has no entry in listener.security.protocol.map",
        ),
        (
            {
                "process_roles": ("broker",),
                "node_id": 4,
                "controller_listener_names": ("SSL", "ADMIN"),
                "controller_quorum_voters": VOTERS,
            },
            "ADMIN has no entry in listener.security.protocol.map",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        BrokerConfig(**options)


def test_controllers_of_a_secured_node_have_the_protocol_of_their_entry() -> None:
    options: dict[str, Any] = {
        "listeners": ("SASL_SSL://:9092", "CONTROLLER://:9093"),
        "controller_quorum_voters": VOTERS,
    }
    for protocol in ("SSL", "PLAINTEXT"):
        entries = ("SASL_SSL:SASL_SSL", f"CONTROLLER:{protocol}")
        config = BrokerConfig(**options, listener_security_protocol_map=entries)
        assert [one.security_protocol for one in config.controller_listeners] == [protocol]
    alone = BrokerConfig(listeners=("SASL_SSL://:9092",))  # it has no listener of controllers, and needs no entry
    assert alone.controller_listeners == ()
