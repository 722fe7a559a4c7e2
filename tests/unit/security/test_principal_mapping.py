"""From a certificate's subject to a principal."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from triokafka.errors import ConfigurationError
from triokafka.security.principal_mapping import PrincipalMapping, distinguished_name


def named(*parts: list[tuple[x509.ObjectIdentifier, str]]) -> str:
    relative = [x509.RelativeDistinguishedName([x509.NameAttribute(*one) for one in part]) for part in parts]
    return distinguished_name(x509.Name(relative).public_bytes())


def test_name_is_that_of_rfc_2253() -> None:
    shop = [(NameOID.ORGANIZATION_NAME, "Shop, Inc.")]
    assert named([(NameOID.COUNTRY_NAME, "CN")], shop, [(NameOID.COMMON_NAME, "kafka-1")]) == (
        "CN=kafka-1,O=Shop\\, Inc.,C=CN"
    )
    both = named([(NameOID.COMMON_NAME, "a"), (NameOID.USER_ID, "#b  ")])
    assert sorted(both.split("+")) == ["CN=a", "UID=\\#b\\ \\ "]
    assert named([(NameOID.COMMON_NAME, "\N{SNOWMAN}")]) == "CN=\N{SNOWMAN}"


def test_attributes_without_a_short_name_appear_as_they_are_encoded() -> None:
    assert named([(NameOID.EMAIL_ADDRESS, "a@b")]) == "1.2.840.113549.1.9.1=#1603614062"
    assert named([(NameOID.TITLE, "ab")]) == "2.5.4.12=#0c026162"
    assert distinguished_name(bytes.fromhex("300b3109300706035504030500")) == "CN=#0500"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1c0400000061", "CN=#1c0400000061"),  # UniversalString
        ("120131", "CN=#120131"),  # NumericString
        ("1e040061002c", "CN=\\00a\\00\\,"),  # BMPString
        ("1402c3a4", "CN=ä"),  # TeletexString
        ("0c0161", "CN=a"),
    ],
)
def test_types_of_text_are_read_as_java_reads_them(value: str, text: str) -> None:
    attribute = "0603550403" + value
    for tag in ("30", "31", "30"):
        attribute = f"{tag}{len(attribute) // 2:02x}{attribute}"
    assert distinguished_name(bytes.fromhex(attribute)) == text


def test_name_that_is_too_long_has_no_principal() -> None:
    name = "CN=" + "a" * 4093
    assert PrincipalMapping("RULE:CN=(a*).*/$1/").principal(name) == "a" * 4093
    assert PrincipalMapping("RULE:CN=(a*).*/$1/").principal(name + ",OU=other") is None


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "CN=Duke,OU=ServiceUsers,O=Org"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L, DEFAULT", "duke@serviceusers"),
        ("RULE:^CN=(.*?),.*$/$1/U", "DUKE"),
        ("RULE:^nothing$/x/,DEFAULT", "CN=Duke,OU=ServiceUsers,O=Org"),
        ("RULE:^CN=(.*?),.*$/a\\$$1\\/b/L", "a$duke/b"),
        ("RULE:CN=(.*?),OU=(.*?),.*/$2/,DEFAULT", "ServiceUsers"),
        ("RULE:(CN)=.*|(O)=.*/$2x$1/", "xCN"),
        ("RULE:.*/x/", "xx"),
        ("RULE:^nothing$/x/", None),
        ("", None),
    ],
)
def test_first_matching_rule_decides(rules: str, principal: str | None) -> None:
    assert PrincipalMapping(rules).principal("CN=Duke,OU=ServiceUsers,O=Org") == principal


BROKEN = ("RULE:a", "RULE:(/x/", "NOTHING", "DEFAULT DEFAULT", "RULE:a/b/X", "RULE:a/$1/", "RULE:a/$/")


@pytest.mark.parametrize("rules", BROKEN)
def test_broken_rules_are_refused(rules: str) -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)
