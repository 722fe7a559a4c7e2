"""``sasl.kerberos.principal.to.local.rules``, as Kafka's KerberosNameTest has it."""

from __future__ import annotations

import pytest

from triokafka.errors import ConfigurationError
from triokafka.security.kerberos.local_names import LocalNames

RULES = (
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g,RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g,"
    "RULE:[1:$1]/L,RULE:[2:$1]/U,RULE:[2:$1](.*)s/x/y/L,DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (RULES, "App.service-name@REALM.COM", "service-name"),
        (RULES, "App.service-name/example.com@REALM.COM", "service-name"),
        (RULES, "User@REALM.COM", "user"),
        (RULES, "user/host@REALM.COM", "USER"),
        ("DEFAULT", "user@REALM.COM", "user"),
        ("DEFAULT", "kafka/broker1@REALM.COM", "kafka"),
        ("DEFAULT", "user@OTHER.COM", None),
        ("DEFAULT", "user", "user"),
        ("RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//,DEFAULT", "guest@OTHER.COM", "guest"),
        ("RULE:[1:$1@$0]", "guest@OTHER.COM", None),
        ("RULE:[2:$2;$1](^h.*)", "user/host@R", "host;user"),
        ("RULE:[1:$1](x.*),DEFAULT", "x1@OTHER", "x1"),
    ],
)
def test_first_rule_that_applies_gives_the_name(rules: str, principal: str, name: str | None) -> None:
    assert LocalNames(rules, "REALM.COM").name(principal) == name


@pytest.mark.parametrize(
    "rules", ["nonsense", "RULE:[1:$1](", "DEFAULT DEFAULT", "RULE:[1:$1]([)", "RULE:[1:$2]", "RULE:[1:$1]s/a/$1/"]
)
def test_unreadable_rules_are_refused(rules: str) -> None:
    with pytest.raises(ConfigurationError, match=r"principal\.to\.local\.rules"):
        LocalNames(rules, "R")
