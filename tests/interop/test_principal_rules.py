"""Rules for principals give the same names as Apache Kafka's classes, for certificates (KIP-371) and Kerberos.

All lines go to one Java program (``java/PrincipalRules.java``): the kind, the rules, and the name, separated by tabs; a
result starts with ``=``, or with ``!`` if there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from tests.interop import jvm
from triokafka.errors import ConfigurationError
from triokafka.security.kerberos.local_names import LocalNames
from triokafka.security.principal_mapping import PrincipalMapping, distinguished_name

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

NAMES = ("CN=Duke,OU=ServiceUsers,O=Org", "CN=a\\, b,O=Org", "CN=kafka-1", "", "CN=x$1,OU=y\\\\z", "O=Org,CN=Duke/x")
PATTERNS = (
    "^CN=(.*?),OU=(.*?),.*$", "CN=(.*?),OU=(.*?).*", "(.*)", ".*", "^.*$", "CN=([a-zA-Z]+).*", "(CN)=.*|(O)=.*",
    "CN=(\\w+)-(\\d).*", "^CN=((((((((((a))))))))))\\\\,.*$", "(", "a{2,1}", "", "\\/x", ".*\\/.*",
)  # fmt: skip
REPLACEMENTS = ("$1", "$1@$2", "$2", "$0", "x", "", "\\$1", "a\\\\b", "$", "$12", "$1x\\/y", "\\", "${1}")
REALMS_NAMES = ("alice@REALM", "alice/h.example@REALM", "alice@OTHER", "a/b@OTHER", "alice", "a-b@REALM", "App.x@REALM")
FORMATS = ("[1:$1]", "[1:$1@$0]", "[2:$1;$2]", "[2:$2]", "[1:$2]", "[1:x]", "[2:$1.$0]", "[1:$]")
MATCHES = ("", "(.*)", "(a.*)", "(.*@OTHER)", "(App\\..*)", "([)")
CHANGES = ("", "s/@.*//", "s/a/x/", "s/a/x/g", "s/App\\.(.*)/$1/", "s/(a)(-)?/$2$1/g", "s/a/$1/", "s/;.*//")
CASES = ("", "/L", "/U", "L")


def certificate_lines(random: Random) -> Iterator[tuple[str, str, str]]:
    for _ in range(600):
        rules = [
            f"RULE:{random.choice(PATTERNS)}/{random.choice(REPLACEMENTS)}/{random.choice('LU ').strip()}"
            for _ in range(random.randint(1, 2))
        ]
        yield "certificate", ",".join([*rules, *random.choice(([], ["DEFAULT"]))]), random.choice(NAMES)


def kerberos_lines(random: Random) -> Iterator[tuple[str, str, str]]:
    for _ in range(600):
        parts = (FORMATS, MATCHES, CHANGES, CASES)
        rules = ["RULE:" + "".join(map(random.choice, parts)) for _ in range(random.randint(1, 2))]
        yield "kerberos", ",".join([*rules, *random.choice(([], ["DEFAULT"]))]), random.choice(REALMS_NAMES)


def ours(kind: str, rules: str, name: str) -> str | None:
    try:
        return (
            PrincipalMapping(rules).principal(name) if kind == "certificate" else LocalNames(rules, "REALM").name(name)
        )
    except ConfigurationError:
        return None


def test_rules_give_the_names_that_apache_kafka_gives(tmp_path: Path) -> None:
    """A rule that Kafka cannot apply to some name is refused here with the configuration, for all names."""
    random = Random(371)
    lines = [*certificate_lines(random), *kerberos_lines(random)]
    different = []
    for line, theirs in zip(lines, answers(tmp_path, lines), strict=True):
        found = ours(*line)
        if found is None and theirs.startswith("="):
            try:  # refused as a whole?
                _ = PrincipalMapping(line[1]) if line[0] == "certificate" else LocalNames(line[1], "REALM")
            except ConfigurationError:
                continue
        if ("!" if found is None else f"={found}") != (theirs[:1] if theirs.startswith("!") else theirs):
            different.append((line, found, theirs))
    assert different == []


def test_subjects_have_the_names_that_java_gives(tmp_path: Path) -> None:
    kinds = (
        NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.EMAIL_ADDRESS,
        NameOID.SERIAL_NUMBER, NameOID.TITLE, NameOID.DOMAIN_COMPONENT, NameOID.USER_ID, NameOID.STREET_ADDRESS,
        NameOID.STATE_OR_PROVINCE_NAME, NameOID.SURNAME, NameOID.GIVEN_NAME,
    )  # fmt: skip
    values = (
        "a", "a, b", " a", "a ", "#a", 'a"b', "a+b=c", "a\\b", "<a>;", "a" * 60, "ä", "a  b", "  ", " #a", "\0", "é日",
        "😀", "e\u0301", "\x7f", "CN=x,O=y", "\\,",
    )  # fmt: skip
    random = Random(371)
    lines, found = [], []
    for _ in range(500):
        parts = []
        for _ in range(random.randint(1, 3)):
            several = random.sample(kinds, random.choice((1, 1, 1, 2, 3)))
            parts.append(x509.RelativeDistinguishedName([attribute(random, kind, values) for kind in several]))
        name = x509.Name(parts)
        lines.append(("subject", "", name.public_bytes().hex()))
        found.append(f"={distinguished_name(name.public_bytes())}")
    theirs = answers(tmp_path, lines)
    assert [pair for pair in zip(found, theirs, strict=True) if pair[0] != pair[1]] == []


def attribute(random: Random, kind: x509.ObjectIdentifier, values: Sequence[str]) -> x509.NameAttribute:
    """Return an attribute with any of the types that certificates have for text."""
    value = random.choice(values)
    types = [_ASN1Type.UTF8String, _ASN1Type.PrintableString, _ASN1Type.T61String, _ASN1Type.IA5String]
    types += [_ASN1Type.NumericString, _ASN1Type.VisibleString, _ASN1Type.UniversalString]
    types += [_ASN1Type.BMPString] if all(ord(one) < 0x10000 for one in value) else []
    return x509.NameAttribute(kind, value, random.choice(types), _validate=False)


def answers(directory: Path, lines: list[tuple[str, str, str]]) -> list[str]:
    asked, answered = directory / "asked", directory / "answered"
    asked.write_text("".join("\t".join(line) + "\n" for line in lines))
    jvm.run_java("PrincipalRules", str(asked), str(answered))
    return answered.read_text().splitlines()
