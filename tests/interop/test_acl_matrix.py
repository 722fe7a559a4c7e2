"""Every API under every kind of permission: our broker's responses equal those of Apache Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from tests.interop import jvm
from tests.support.acl_matrix import ADMIN, CONTROLLER_REQUESTS, PASSWORD, REQUESTS, answers, prepare, scenarios
from tests.support.broker_process import BrokerProcess
from triokafka.cli.cluster.free_ports import free_ports

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def settings(client: int, controller: int) -> dict[str, str]:
    """Return the properties of one node, broker and controller, with PLAIN users on both listeners."""
    users = " ".join(f'user_{one.user}="{PASSWORD}"' for one in scenarios())
    login = f'{PLAIN} required username="{ADMIN}" password="{PASSWORD}" user_{ADMIN}="{PASSWORD}" {users};'
    return {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"CLIENT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"CLIENT://127.0.0.1:{client}",
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": STANDARD,
        "super.users": f"User:{ADMIN}",
        "process.roles": "broker,controller",
        "node.id": "1",
        "group.consumer.session.timeout.ms": "1000000",
        "group.consumer.max.session.timeout.ms": "1000000",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


async def _responses(client: int, controller: int) -> dict[tuple[str, str], str]:
    everybody = scenarios()
    ids = await prepare(f"127.0.0.1:{client}", everybody)
    of_controller = await answers(
        f"127.0.0.1:{controller}",
        [one for one in everybody if all(rule.kind.name in ("CLUSTER", "TOPIC") for rule in one.rules)],
        [one for one in CONTROLLER_REQUESTS if one.api != "delete_topics"],
        ids,
    )
    of_broker = await answers(f"127.0.0.1:{client}", everybody, REQUESTS, ids)
    return {
        **of_broker,
        **{(f"controller: {case}", name): response for (case, name), response in of_controller.items()},
    }


def differences(ours: Mapping[tuple[str, str], str], theirs: Mapping[tuple[str, str], str]) -> list[str]:
    """Return a text for every pair of request and scenario with different responses."""
    return [
        f"{case} | {name or 'nothing'}\n  ours   {ours[case, name]}\n  theirs {theirs[case, name]}"
        for case, name in ours
        if ours[case, name] != theirs[case, name]
    ]


def test_every_user_gets_the_responses_of_apache_kafka(tmp_path: Path) -> None:
    ports = free_ports(4)
    found: list[dict[tuple[str, str], str]] = []
    config = tmp_path / "ours.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings(ports[0], ports[1]).items()))
    process = BrokerProcess(None, config=config)
    try:
        process.start()
        found.append(trio.run(_responses, ports[0], ports[1]))
    finally:
        process.close()
    kafka = {name.replace(".", "_"): value for name, value in settings(ports[2], ports[3]).items()}
    with jvm.apache_kafka(tmp_path, port=ports[2], **kafka):
        found.append(trio.run(_responses, ports[2], ports[3]))
    ours, theirs = found
    assert len(ours) == len(theirs) > 8000
    assert (
        sum(response == "closed" for response in theirs.values()) < 100
    )  # a closed connection gives nothing to compare
    unequal = differences(ours, theirs)
    assert not unequal, f"{len(unequal)} differences:\n" + "\n".join(unequal[:20])
