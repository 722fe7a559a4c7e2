"""From a certificate's subject to a principal."""

from __future__ import annotations

import pytest

from triokafka.errors import ConfigurationError
from triokafka.security.principal_mapping import PrincipalMapping, distinguished_name

SUBJECT = ((("countryName", "CN"),), (("organizationName", "Shop, Inc."),), (("commonName", "kafka-1"),))


def test_name_is_that_of_rfc_2253() -> None:
    assert distinguished_name(SUBJECT) == "CN=kafka-1,O=Shop\\, Inc.,C=CN"
    assert distinguished_name([[("commonName", "a"), ("userId", "#b ")]]) == "CN=a+UID=\\#b\\ "
    assert distinguished_name([[("emailAddress", "a@b")]]) == "1.2.840.113549.1.9.1=#1603614062"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "CN=Duke,OU=ServiceUsers,O=Org"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L, DEFAULT", "duke@serviceusers"),
        ("RULE:^CN=(.*?),.*$/$1/U", "DUKE"),
        ("RULE:^nothing$/x/,DEFAULT", "CN=Duke,OU=ServiceUsers,O=Org"),
        ("RULE:^CN=(.*?),.*$/a$2b/", "ab"),
    ],
)
def test_first_matching_rule_decides(rules: str, principal: str) -> None:
    assert PrincipalMapping(rules).principal("CN=Duke,OU=ServiceUsers,O=Org") == principal


@pytest.mark.parametrize("rules", ["RULE:a", "RULE:(/x/", "NOTHING", "DEFAULT DEFAULT", "RULE:a/b/X"])
def test_broken_rules_are_refused(rules: str) -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)
