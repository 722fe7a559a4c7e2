"""Decisions about random ACLs: equal to those of Apache Kafka's StandardAuthorizer.

All queries go to one Java program in one file (``java/Decisions.java``): a line ``config`` creates a new authorizer,
``acl`` adds an ACL, ``ask`` checks a resource, and ``somewhere`` checks any resource of a type.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest

from tests.interop import jvm
from tests.unit.broker_stub.test_standard_authorizer import World
from triokafka.broker_stub.metadata.security_records import acl_record
from triokafka.security.acl import AclBinding, AclOperation, AclPatternType, AclPermissionType, ResourceType

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

WORLDS = 200
QUESTIONS = 60
NAMES = ("a", "ab", "abc", "abd", "b", "ba", "*", "a*", "kafka-cluster", "hardcode", "é", "éa", "\U0001f600")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice", "User:CN=a,O=b")
HOSTS = ("10.0.0.1", "10.0.0.2")


class Query(NamedTuple):
    """A query; without a name for any resource of the type."""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str | None


def test_ten_thousand_decisions_equal_those_of_apache_kafka(tmp_path: Path) -> None:
    random = Random(24)
    lines: list[str] = []
    ours: list[str] = []
    operations = [operation for operation in AclOperation if operation >= AclOperation.READ]
    types = [kind for kind in ResourceType if kind >= ResourceType.TOPIC]
    asked: list[tuple[object, ...]] = []
    for number in range(WORLDS):
        few_types = random.sample(types, 2)
        few_operations = random.sample(operations, random.randint(1, len(operations)))
        super_users = random.choice(("", "User:alice", "User:CN=a,O=b; User:bob"))
        open_to_all = random.choice(("true", "false"))
        world = World(super_users=super_users, allow_everyone_if_no_acl_found=open_to_all)
        lines.append(f"config\t{super_users}\t{open_to_all}")
        acls = {
            AclBinding(
                random.choice(few_types),
                random.choice(NAMES),
                random.choice((AclPatternType.LITERAL, AclPatternType.PREFIXED)),
                random.choice(PRINCIPALS),
                random.choice((*HOSTS, "*", "*")),
                random.choice((*few_operations, AclOperation.ALL)),
                random.choice((AclPermissionType.ALLOW, AclPermissionType.ALLOW, AclPermissionType.DENY)),
            ): None
            for _ in range(random.randint(0, 25))
        }
        for acl in acls:
            world.replay(acl_record(UUID(int=random.getrandbits(128)), acl))
            lines.append("\t".join(["acl", *(str(int(part)) if isinstance(part, int) else part for part in acl)]))
        for _ in range(QUESTIONS):
            question = Query(
                random.choice([one for one in PRINCIPALS if one != "User:*"]),
                random.choice(HOSTS),
                random.choice(operations if random.random() < 0.3 else few_operations),
                random.choice(few_types),
                None if random.random() < 0.2 else random.choice((*NAMES, "abcd", "zz")),
            )
            principal, host, operation, kind, name = question
            if name is None:
                allowed = world.authorizer.allows_somewhere(principal, host, operation, kind)
                lines.append(f"somewhere\t{principal}\t{host}\t{int(operation)}\t{int(kind)}")
            else:
                allowed = world.authorizer.allows(principal, host, operation, kind, name)
                lines.append(f"ask\t{principal}\t{host}\t{int(operation)}\t{int(kind)}\t{name}")
            ours.append(str(int(allowed)))
            asked.append((number, super_users, open_to_all, question, [acl for acl in acls if acl[0] is kind]))
    questions, answers = tmp_path / "questions", tmp_path / "answers"
    questions.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    jvm.run_java("Decisions", str(questions), str(answers))
    theirs = answers.read_text().split()
    assert len(theirs) == len(ours) == WORLDS * QUESTIONS
    differences = [(query, one, other) for query, one, other in zip(asked, ours, theirs, strict=True) if one != other]
    assert not differences, differences[:3]
    assert 0.1 < ours.count("1") / len(ours) < 0.9  # both decisions are frequent
