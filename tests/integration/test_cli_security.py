"""``triokafka acls``, ``users`` and ``storage format --add-scram``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.tool import Tool
from triokafka.cli.acls.acl_flags import ChosenAcls
from triokafka.cli.add_scram import scram_record
from triokafka.cli.app import run
from triokafka.security.acl import AclOperation, AclPatternType, AclPermissionType
from triokafka.security.scram_credentials import ScramMechanism, salt_password, stored_credential

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    process = BrokerProcess(None, settings={"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"})
    yield process.start()
    assert process.stop() == 0


def entries(chosen: ChosenAcls) -> set[tuple[str, str, str, str, str]]:
    return {
        (acl.resource_type.name, acl.resource_name, acl.principal, acl.operation.name, acl.host)
        for acl in chosen.bindings()
    }


ALICE = ("User:alice",)


class TestFlags:
    def test_acls_are_the_product_of_principals_hosts_and_operations(self) -> None:
        acls = ChosenAcls(
            topics=("t",), operations=("Read", "Write"), allow_principals=("User:a", "User:b"), allow_hosts=("h1", "h2")
        ).bindings()
        assert len(set(acls)) == 8 and {acl.permission_type for acl in acls} == {AclPermissionType.ALLOW}

    def test_everyone_but_one_from_one_host_is_one_command(self) -> None:
        acls = ChosenAcls(
            topics=("test",), operations=("read",), allow_principals=("User:*",), deny_principals=("User:liming",),
            deny_hosts=("192.168.1.117",),
        ).bindings()  # fmt: skip
        assert [(acl.permission_type.name, acl.principal, acl.host) for acl in acls] == [
            ("ALLOW", "User:*", "*"),
            ("DENY", "User:liming", "192.168.1.117"),
        ]

    def test_producer_and_consumer_get_kafkas_permissions(self) -> None:
        producer = ChosenAcls(
            topics=("t",), transactional_ids=("x",), allow_principals=ALICE, producer=True, idempotent=True
        )
        assert {entry[:2] + entry[3:4] for entry in entries(producer)} == {
            ("TOPIC", "t", "WRITE"), ("TOPIC", "t", "DESCRIBE"), ("TOPIC", "t", "CREATE"),
            ("TRANSACTIONAL_ID", "x", "WRITE"), ("TRANSACTIONAL_ID", "x", "DESCRIBE"),
            ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
        }  # fmt: skip
        both = ChosenAcls(topics=("t",), groups=("g",), allow_principals=ALICE, producer=True, consumer=True)
        assert {entry[:2] + entry[3:4] for entry in entries(both)} == {
            ("TOPIC", "t", "WRITE"), ("TOPIC", "t", "DESCRIBE"), ("TOPIC", "t", "CREATE"), ("TOPIC", "t", "READ"),
            ("GROUP", "g", "READ"),
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("chosen", "problem"),
        [
            (ChosenAcls(allow_principals=ALICE), "Name a resource"),
            (ChosenAcls(topics=("t",)), "Name a principal"),
            (ChosenAcls(topics=("t",), allow_principals=("alice",)), "'alice' is not a principal: .* User:alice"),
            (ChosenAcls(topics=("t",), allow_hosts=("h",)), "--allow-host needs"),
            (ChosenAcls(topics=("t",), allow_principals=ALICE, operations=("fly",)), "no such operation"),
            (
                ChosenAcls(groups=("g",), allow_principals=ALICE, operations=("write",)),
                "WRITE is not an operation of GROUP 'g'",
            ),
            (ChosenAcls(topics=("t",), allow_principals=ALICE, consumer=True), "--consumer needs --group"),
            (ChosenAcls(topics=("t",), allow_principals=ALICE, idempotent=True), "--idempotent needs --producer"),
            (
                ChosenAcls(topics=("t",), allow_principals=ALICE, producer=True, operations=("read",)),
                "exclude --operation",
            ),
            (ChosenAcls(topics=("t",), allow_principals=ALICE, pattern_type=AclPatternType.MATCH), "only for filters"),
        ],
    )
    def test_contradictions_are_usage_errors(self, chosen: ChosenAcls, problem: str) -> None:
        with pytest.raises(click.UsageError, match=problem):
            chosen.bindings()

    def test_filters_without_principal_match_all_acls_of_the_resource(self) -> None:
        (one,) = ChosenAcls(topics=("t",)).filters()
        assert one[:4] == (2, "t", AclPatternType.LITERAL, None)
        (exact,) = ChosenAcls(topics=("t",), allow_principals=ALICE, operations=("DescribeConfigs",)).filters()
        assert exact.operation is AclOperation.DESCRIBE_CONFIGS and exact.principal == "User:alice"


class TestAgainstABroker:
    def test_acls_are_added_listed_and_removed(self, tool: Tool) -> None:
        text = tool.ok("acls", "add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
        pattern = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
        assert text.splitlines()[0] == f"Adding ACLs for resource `{pattern}`:"
        assert "\t(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)" in text.splitlines()
        tool.ok(
            "acls", "add", "--deny-principal", "User:eve", "--operation", "read", "--topic", "ord",
            "--resource-pattern-type", "prefixed",
        )  # fmt: skip
        listed = json.loads(tool.ok("acls", "list", "--topic", "orders", "--resource-pattern-type", "match", "--json"))
        assert {one["principal"] for one in listed} == {"User:alice", "User:eve"}
        assert "User:eve" not in tool.ok("acls", "list", "--principal", "User:alice")
        assert tool("acls", "remove", "--topic", "orders").status == 2  # no terminal for the confirmation
        removed = json.loads(tool.ok("acls", "remove", "--topic", "orders", "--yes", "--json"))
        assert {one["operation"] for one in removed} == {"WRITE", "DESCRIBE", "CREATE"}
        assert tool.ok("acls", "list").splitlines() == [
            "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)`:",
            "\t(principal=User:eve, host=*, operation=READ, permissionType=DENY)",
        ]

    def test_users_are_added_listed_and_removed(self, tool: Tool, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("planted-secret\n")
        done = tool("users", "add", "alice", "--password-file", str(secret), "--mechanism", "SCRAM-SHA-256")
        assert done.status == 0 and "planted-secret" not in done.out + done.err
        assert tool.ok("users", "list") == "alice: SCRAM-SHA-256 iterations=4096\n"
        document = json.loads(tool.ok("users", "list", "alice", "--json"))
        assert document == [{"user": "alice", "credentials": {"SCRAM-SHA-256": 4096}}]
        assert tool("users", "list", "bob").status == 1
        assert tool("users", "add", "bob").status == 2  # no password
        tool.ok("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256", "--yes")
        assert tool.ok("users", "list") == ""


class TestAddScram:
    def test_argument_becomes_the_record_of_the_user(self) -> None:
        salt = "MDEyMzQ1Njc4OWFiY2RlZg=="
        record = scram_record(
            f'SCRAM-SHA-256=[name=alice,salt="{salt}",iterations=8192,password=pencil]', lambda n: b""
        )
        salted = salt_password(ScramMechanism.SCRAM_SHA_256, b"pencil", b"0123456789abcdef", 8192)
        expected = stored_credential(ScramMechanism.SCRAM_SHA_256, salted, b"0123456789abcdef", 8192)
        assert (record.name, record.mechanism, record.iterations) == ("alice", 1, 8192)
        assert (record.salt, record.stored_key, record.server_key) == (
            expected.salt,
            expected.stored_key,
            expected.server_key,
        )

    @pytest.mark.parametrize(
        "argument",
        [
            "PLAIN=[name=a,password=planted]", "SCRAM-SHA-256=name=a,password=planted",
            "SCRAM-SHA-256=[password=planted]", "SCRAM-SHA-256=[name=a]",
            "SCRAM-SHA-256=[name=a,password=planted,iterations=4095]",
            "SCRAM-SHA-256=[name=a,saltedpassword=planted]", "SCRAM-SHA-256=[name=a,pass=planted]",
            "SCRAM-SHA-256=[name=a,password=planted,salt=!]",
        ],
    )  # fmt: skip
    def test_wrong_argument_is_a_usage_error_without_the_password(self, argument: str) -> None:
        with pytest.raises(click.UsageError) as caught:
            scram_record(argument, bytes)
        assert "planted" not in str(caught.value)

    def test_new_cluster_starts_with_the_user(
        self, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data, file = tmp_path / "data", tmp_path / "server.properties"
        file.write_text(f"node.id=1\nlog.dirs={data}\nlisteners=PLAINTEXT://127.0.0.1:0\n")
        user = "SCRAM-SHA-512=[name=admin,password=planted-secret]"
        cluster = ("-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(file), "--standalone")
        assert run(["storage", "format", *cluster, "--add-scram", user]) == 0
        bootstrap = data / "bootstrap.checkpoint"
        assert bootstrap.stat().st_mode & 0o777 == 0o600
        assert b"planted-secret" not in bootstrap.read_bytes()
        process = BrokerProcess(data)
        try:
            tool = Tool(process.start(), capfdbinary, monkeypatch)
            assert tool.ok("users", "list") == "admin: SCRAM-SHA-512 iterations=4096\n"
        finally:
            process.stop()
