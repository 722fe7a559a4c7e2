"""Java's login configuration: its syntax, its files, and errors that name the place and show no secret."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.broker_stub.config.broker_config import BrokerConfig
from triokafka.broker_stub.network.inter_broker_security import inter_broker_security
from triokafka.client.config import ProducerOptions
from triokafka.errors import ConfigurationError
from triokafka.security.jaas import VARIABLE, LoginModule, parse_jaas, parse_jaas_file
from triokafka.security.secret import reveal

FILE = """
// The broker's own login, and its users.
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="broker"   # no comment, but a word
        = 1
        user_alice='se"cret'  /* with
                                 quotes */
        user_bob="tab\\tand \\"quotes\\" \\101";
    org.apache.kafka.common.security.scram.ScramLoginModule required username=admin password=hunter2;
};
internal.KafkaServer { com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true storeKey=true keyTab="/etc/kafka.keytab" principal="kafka/host@EXAMPLE.ORG"; };
KafkaClient {
    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="hunter2";
};
"""


def values(module: LoginModule) -> dict[str, str]:
    return {name: reveal(value) for name, value in module.options.items()}


def test_a_file_has_sections_with_login_modules() -> None:
    sections = parse_jaas_file(FILE.replace("# no comment, but a word\n        = 1", ""), source="file")
    assert {name: [one.name for one in modules] for name, modules in sections.items()} == {
        "KafkaServer": ["PlainLoginModule", "ScramLoginModule"],
        "internal.KafkaServer": ["Krb5LoginModule"],
        "KafkaClient": ["PlainLoginModule"],
    }
    assert values(sections["KafkaServer"][0]) == {
        "username": "broker",
        "user_alice": 'se"cret',
        "user_bob": 'tab\tand "quotes" A',
    }
    assert values(sections["KafkaServer"][1]) == {"username": "admin", "password": "hunter2"}
    kerberos = values(sections["internal.KafkaServer"][0])
    assert kerberos["keyTab"] == "/etc/kafka.keytab" and kerberos["useKeyTab"] == "true"
    assert "hunter2" not in repr(sections)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "line 1, column 1: expected the class of a login module before the end"),
        ("X", "line 1, column 2: expected a flag before the end"),
        ('X maybe a="hunter2";', "line 1, column 3: expected one of required, requisite, sufficient, optional"),
        ('X required a="hunter2"', 'line 1, column 23: expected ";" before the end'),
        ('X required a="hunter2;', "line 1, column 14: this quotation mark has no end in its line"),
        ('X required\n a="b"\n "hunter2";', 'line 3, column 11: expected "="'),
        ("X required hunter2;", 'line 1, column 19: expected "="'),
        ("X required a=;", "line 1, column 14: expected a value"),
        (
            'X required a="b"; Y required;',
            "line 1, column 19: expected the end, because there is one login module only",
        ),
        ("X required a=b /* hunter2", "line 1, column 16: this comment has no end"),
        ("X required a == hunter2;", "line 1, column 15: expected a value"),
    ],
)
def test_a_malformed_text_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_jaas(text, source="the option")
    assert str(raised.value) == f"the option: {place}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("KafkaClient X required;", 'line 1, column 13: expected "{"'),
        ("KafkaClient { X required; }", 'line 1, column 28: expected ";" before the end'),
        ("A { X required; };\nA { X required; };", "line 2, column 1: this section is there twice"),
        (FILE, 'line 5, column 31: expected "="'),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_jaas_file(text, source="file")
    assert str(raised.value) == f"file: {place}"


@given(st.text(), st.text(alphabet=string.ascii_letters, min_size=1))
def test_any_value_survives_quoting_and_any_text_ends(value: str, name: str) -> None:
    try:
        parse_jaas(value)
    except ConfigurationError:
        pass
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    assert values(parse_jaas(f'X required {name}="{quoted}";')) == {name: value}


def client(**options: Any) -> Any:
    return ProducerOptions.parse(
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **options}
    ).security()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "jaas.conf"
    path.write_text(FILE.replace("# no comment, but a word\n        = 1", ""))
    return str(path)


def test_a_client_takes_its_login_from_the_file(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reveal(client(sasl_jaas_file=file).sasl.user) == "alice"
    with pytest.raises(ConfigurationError, match="has no login module for SCRAM-SHA-256 in KafkaClient"):
        client(sasl_jaas_file=file, sasl_mechanism="SCRAM-SHA-256")
    with pytest.raises(ConfigurationError, match="needs sasl_username"):
        client()
    monkeypatch.setenv(VARIABLE, file)
    assert reveal(client().sasl.password) == "hunter2"
    assert client(sasl_username="bob", sasl_password="p").sasl.user == "bob"  # nearer than the environment
    monkeypatch.setenv(VARIABLE, file + ".missing")
    with pytest.raises(ConfigurationError, match=f"{VARIABLE}: the JAAS file .* cannot be read: No such file"):
        client()


def broker(file: str, listener: str, mechanism: str) -> BrokerConfig:
    texts = {
        "java.security.auth.login.config": file,
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
    }
    return BrokerConfig(
        listeners=(f"{listener}://127.0.0.1:0",),
        listener_security_protocol_map=(f"{listener}:SASL_PLAINTEXT",),
        inter_broker_listener_name=listener,
        security=texts,
    )


def test_a_listener_takes_its_own_section_before_the_general_one(file: str) -> None:
    found = inter_broker_security(broker(file, "EXTERNAL", "SCRAM-SHA-512"))
    assert found is not None and found.sasl is not None and found.sasl.user == "admin"
    with pytest.raises(ConfigurationError, match="needs username and password"):
        inter_broker_security(broker(file, "INTERNAL", "SCRAM-SHA-512"))  # its own section has Kerberos only
    with pytest.raises(ConfigurationError, match=r"JAAS file .* cannot be read"):
        inter_broker_security(broker(file + ".missing", "EXTERNAL", "PLAIN"))


def test_sections_may_be_empty() -> None:
    found = parse_jaas_file("KafkaServer { X required; };\nClient {};", source="file")
    assert [module.name for module in found["KafkaServer"]] == ["X"] and found["Client"] == ()
