"""Decisions over ACLs: Kafka's rules, and equality with a model that looks at every ACL."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triokafka.security.acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    ResourceType,
)
from triokafka.security.acl_decisions import AclDecisions

LITERAL, PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
TOPIC = ResourceType.TOPIC
Op = AclOperation
HOST = "192.168.1.117"


def acl(
    operation: AclOperation,
    permission: AclPermissionType = ALLOW,
    *,
    name: str = "test",
    pattern: AclPatternType = LITERAL,
    principal: str = "User:liming",
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def index_of(acls: Iterable[AclBinding]) -> AclDecisions:
    index = AclDecisions()
    for one in acls:
        index.add(one)
    return index


def allows(
    index: AclDecisions, operation: AclOperation, *, user: str = "liming", host: str = HOST, name: str = "test"
) -> bool:
    return index.decide(f"User:{user}", host, TOPIC, name).allows(operation)


def test_deny_for_one_user_and_host_overrides_allow_for_all_users() -> None:
    index = index_of([acl(Op.READ, principal="User:*"), acl(Op.READ, DENY, host=HOST)])
    assert not allows(index, Op.READ)
    assert allows(index, Op.READ, host="192.168.1.118")
    assert allows(index, Op.READ, user="bob")
    assert not allows(index, Op.WRITE, user="bob")
    assert allows(index, Op.DESCRIBE)  # a deny of READ does not deny DESCRIBE, which the allow of READ implies


@pytest.mark.parametrize("operation", [Op.READ, Op.WRITE, Op.DELETE, Op.ALTER])
def test_allow_implies_describe_and_deny_does_not(operation: AclOperation) -> None:
    assert allows(index_of([acl(operation)]), Op.DESCRIBE)
    assert not allows(index_of([acl(operation)]), Op.DESCRIBE_CONFIGS)
    assert allows(index_of([acl(Op.DESCRIBE), acl(operation, DENY)]), Op.DESCRIBE)
    assert not allows(index_of([acl(operation), acl(Op.DESCRIBE, DENY)]), Op.DESCRIBE)


def test_alter_configs_implies_describe_configs_alone() -> None:
    assert allows(index_of([acl(Op.ALTER_CONFIGS)]), Op.DESCRIBE_CONFIGS)
    assert not allows(index_of([acl(Op.ALTER_CONFIGS)]), Op.DESCRIBE)


def test_all_covers_every_operation_for_both_permissions() -> None:
    operations = [operation for operation in AclOperation if operation >= Op.READ]
    assert all(allows(index_of([acl(Op.ALL)]), operation) for operation in operations)
    denied = index_of([acl(Op.ALL), acl(Op.ALL, DENY)])
    assert not any(allows(denied, operation) for operation in operations)


def test_resource_without_acls_differs_from_one_with_acls_of_others() -> None:
    index = index_of([acl(Op.READ, DENY, name="te", pattern=PREFIXED, principal="User:bob")])
    assert index.decide("User:liming", HOST, TOPIC, "test").has_acls
    assert not index.decide("User:liming", HOST, TOPIC, "tea"[:1]).has_acls
    assert not index.decide("User:liming", HOST, ResourceType.GROUP, "test").has_acls


def test_removed_acl_has_no_effect_and_leaves_nothing_behind() -> None:
    acls = [acl(Op.READ), acl(Op.WRITE, name="t", pattern=PREFIXED), acl(Op.READ, DENY, principal="User:bob")]
    index = index_of([*acls, *acls])
    assert len(index) == 3
    for one in (*acls, *acls):
        index.remove(one)
    assert len(index) == 0
    assert index.decide("User:liming", HOST, TOPIC, "test") == (0, 0, False)
    assert not index.allows_somewhere("User:liming", HOST, Op.READ, TOPIC)


def test_rule_is_the_deny_if_there_is_one() -> None:
    allowing, denying = acl(Op.ALL), acl(Op.READ, DENY, name="te", pattern=PREFIXED, principal="User:*")
    index = index_of([allowing, denying])
    assert index.rule("User:liming", HOST, Op.READ, TOPIC, "test") == denying
    assert index.rule("User:liming", HOST, Op.DESCRIBE, TOPIC, "test") == allowing
    assert index.rule("User:bob", HOST, Op.DESCRIBE, TOPIC, "test") is None


def test_some_resource_is_allowed_unless_denies_cover_every_allowed_pattern() -> None:
    allowed = acl(Op.WRITE, name="orders")
    for denied, somewhere in (
        ([], True),
        ([acl(Op.WRITE, DENY, name="orders")], False),
        ([acl(Op.ALL, DENY, name="ord", pattern=PREFIXED, principal="User:*")], False),
        ([acl(Op.WRITE, DENY, name="orders-eu", pattern=PREFIXED)], True),
        ([acl(Op.WRITE, DENY, name="*")], False),
        ([acl(Op.WRITE, DENY, principal="User:bob")], True),
    ):
        index = index_of([allowed, *denied])
        assert index.allows_somewhere("User:liming", HOST, Op.WRITE, TOPIC) is somewhere, denied
    assert not index_of([allowed]).allows_somewhere("User:liming", HOST, Op.DESCRIBE, TOPIC)


# The model

_NAMES = st.text("ab*", min_size=1, max_size=4)
_PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*", "Group:a"])
_HOSTS = st.sampled_from(["*", "10.0.0.1", "10.0.0.2"])
_OPERATIONS = st.sampled_from(
    [Op.ALL, Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS]
)
_TYPES = st.sampled_from([TOPIC, ResourceType.GROUP])
_ACLS = st.builds(
    AclBinding, _TYPES, _NAMES, st.sampled_from([LITERAL, PREFIXED]), _PRINCIPALS, _HOSTS, _OPERATIONS,
    st.sampled_from([ALLOW, DENY]),
)  # fmt: skip
_IMPLY = {
    Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER},
    Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS},
}


def model(
    acls: Iterable[AclBinding], principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
) -> tuple[bool, bool]:
    """Whether the operation is allowed, and whether there is any ACL about the resource."""
    about = [one for one in acls if AclBindingFilter(kind, name, AclPatternType.MATCH).matches(one)]
    mine = [one for one in about if one.principal in (principal, "User:*") and one.host in (host, "*")]
    denied = any(one.permission_type is DENY and one.operation in (operation, Op.ALL) for one in mine)
    allowing = {operation, Op.ALL} | _IMPLY.get(operation, set())
    allowed = any(one.permission_type is ALLOW and one.operation in allowing for one in mine)
    return allowed and not denied, bool(about)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(_ACLS, max_size=12),
    st.lists(
        st.tuples(st.sampled_from(["User:a", "User:c", "Group:a"]), _HOSTS, _OPERATIONS, _TYPES, _NAMES), max_size=12
    ),
    st.data(),
)
def test_decisions_equal_those_of_a_model_that_looks_at_every_acl(
    acls: list[AclBinding], questions: list[tuple[str, str, AclOperation, ResourceType, str]], data: st.DataObject
) -> None:
    index, present = AclDecisions(), dict.fromkeys(acls)
    for one in acls:
        index.add(one)
    for _ in range(2):
        for principal, host, operation, kind, name in questions:
            decision = index.decide(principal, host, kind, name)
            expected = model(present, principal, host, operation, kind, name)
            assert (decision.allows(operation), decision.has_acls) == expected
            rule = index.rule(principal, host, operation, kind, name)
            assert expected[0] is (rule is not None and rule.permission_type is ALLOW)
        for one in data.draw(st.lists(st.sampled_from(acls), max_size=6)) if acls else ():
            index.remove(one)
            present.pop(one, None)
        assert len(index) == len(present)


def test_ipv6_host_matches_in_its_short_form_and_as_java_writes_it() -> None:
    """An ACL that Apache Kafka enforces must have the same effect here: above all one that denies."""
    for written in ("2001:db8::1", "2001:db8:0:0:0:0:0:1"):
        index = index_of([acl(Op.WRITE), acl(Op.ALL, DENY, host=written)])
        assert not allows(index, Op.WRITE, host="2001:db8::1")
        assert not index.allows_somewhere("User:liming", "2001:db8::1", Op.WRITE, TOPIC)
        rule = index.rule("User:liming", "2001:db8::1", Op.WRITE, TOPIC, "test")
        assert rule is not None
        assert rule.permission_type is DENY
        assert allows(index, Op.WRITE, host="2001:db8::2")
        index.remove(acl(Op.ALL, DENY, host=written))
        assert allows(index, Op.WRITE, host="2001:db8::1")
    index = index_of([acl(Op.READ, host="fe80:0:0:0:0:0:0:1%eth0")])
    assert allows(index, Op.READ, host="fe80::1%eth0")
    assert not allows(index, Op.READ, host="fe80::1%eth1")


def test_decisions_about_long_names_take_no_memory() -> None:
    """Clients choose the names that they ask about: ten thousand of 32 KB would be 320 MB."""
    index = index_of([acl(Op.READ)])
    tracemalloc.start()
    try:
        for number in range(200):
            assert not allows(index, Op.READ, name=f"{number:010}" * 3_200)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000
