"""Kafka's tools for ACLs and users on our broker, and ours on Apache Kafka's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop import jvm
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"


def ours(bootstrap: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "triokafka", *arguments, "--bootstrap-server", bootstrap, "--timeout", "60000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done
    return done.stdout


def test_kafkas_tools_manage_acls_and_users_of_our_broker() -> None:
    process = BrokerProcess(None, settings={"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"})
    broker = ("--bootstrap-server", process.start())
    try:
        principal = ("--allow-principal", "User:alice")
        jvm.run_java(ACLS, *broker, "--add", *principal, "--producer", "--topic", "orders", "--idempotent")
        listed = json.loads(ours(broker[1], "acls", "list", "--json"))
        assert {(one["resource_name"], one["operation"]) for one in listed} == {
            ("orders", "WRITE"), ("orders", "DESCRIBE"), ("orders", "CREATE"), ("kafka-cluster", "IDEMPOTENT_WRITE"),
        }  # fmt: skip
        shown = jvm.run_java(ACLS, *broker, "--list", "--topic", "orders")
        assert "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW" in shown
        jvm.run_java(ACLS, *broker, "--remove", "--force", "--topic", "orders", "--cluster")
        assert ours(broker[1], "acls", "list") == ""
        user = ("--entity-type", "users", "--entity-name", "alice")
        jvm.run_java(CONFIGS, *broker, "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=s3cret]")
        assert ours(broker[1], "users", "list") == "alice: SCRAM-SHA-256 iterations=4096\n"
        assert "SCRAM-SHA-256=iterations=4096" in jvm.run_java(CONFIGS, *broker, "--describe", *user)
        jvm.run_java(CONFIGS, *broker, "--alter", *user, "--delete-config", "SCRAM-SHA-256")
        assert ours(broker[1], "users", "list") == ""
    finally:
        process.stop()


def test_our_tools_manage_acls_and_users_of_apache_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOKAFKA_USER_PASSWORD", "s3cret")
    with jvm.apache_kafka(tmp_path, authorizer_class_name=STANDARD, super_users="User:ANONYMOUS") as bootstrap:
        ours(bootstrap, "acls", "add", "--allow-principal", "User:bob", "--consumer", "--topic", "t", "--group", "g")
        listed = json.loads(ours(bootstrap, "acls", "list", "--principal", "User:bob", "--json"))
        assert {(one["resource_type"], one["operation"]) for one in listed} == {
            ("TOPIC", "READ"), ("TOPIC", "DESCRIBE"), ("GROUP", "READ"),
        }  # fmt: skip
        assert (
            json.loads(ours(bootstrap, "acls", "remove", "--topic", "t", "--group", "g", "--yes", "--json")) == listed
        )
        assert ours(bootstrap, "acls", "list") == ""
        ours(bootstrap, "users", "add", "alice")
        assert ours(bootstrap, "users", "list") == "alice: SCRAM-SHA-512 iterations=4096\n"
        ours(bootstrap, "users", "remove", "alice", "--yes")
        assert ours(bootstrap, "users", "list") == ""
