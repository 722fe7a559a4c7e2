"""Variables in properties files: where their values come from, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from triokafka.broker_stub.config.broker_config import BrokerConfig
from triokafka.broker_stub.config.properties import parse_properties
from triokafka.errors import ConfigurationError
from triokafka.security.config_providers import resolved

CLASS = "org.apache.kafka.common.config.provider."


def properties(**kinds: str) -> dict[str, str]:
    named = {f"config.providers.{name}.class": CLASS + kind for name, kind in kinds.items()}
    return {"config.providers": ",".join(kinds), **named}


def resolve(texts: dict[str, str]) -> dict[str, str]:
    return resolved(texts, parse_properties, environment={"KAFKA_X": "x", "OTHER": "y"})


def test_values_come_from_the_environment_and_from_files(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("a=1\nb = two words")
    texts = properties(e="EnvVarConfigProvider", f="FileConfigProvider", d="DirectoryConfigProvider") | {
        "one": "${e:KAFKA_X}-${f:" + f"{tmp_path}/secrets" + ":b}",
        "two": "${d:" + str(tmp_path) + ":secrets}",
        "three": "${other:x} $x ${}",
    }
    assert resolve(texts) == {"one": "x-two words", "two": "a=1\nb = two words", "three": "${other:x} $x ${}"}
    assert resolve({"one": "${e:KAFKA_X}"}) == {"one": "${e:KAFKA_X}"}  # no providers, no variables


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${e:MISSING}", r"^option: the variable \$\{e:MISSING\} has no value"),
        ("${e:OTHER}", "has no value"),  # not on the allow-list
        ("${f:/etc/passwd:x}", "^option: the file /etc/passwd is not below config.providers.f.param.allowed.paths"),
        ("${f:/allowed/../etc/passwd:x}", "is not below"),
        ("${f:/allowed/missing:x}", "^option: the file /allowed/missing cannot be read: No such file"),
        ("${d:/etc:../etc/passwd}", "has no value"),
    ],
)
def test_a_variable_without_a_value_is_an_error(text: str, words: str) -> None:
    texts = properties(e="EnvVarConfigProvider", f="FileConfigProvider", d="DirectoryConfigProvider") | {
        "config.providers.e.param.allowlist.pattern": "KAFKA_.*",
        "config.providers.f.param.allowed.paths": "/allowed",
        "option": text,
    }
    with pytest.raises(ConfigurationError, match=words):
        resolve(texts)


def test_an_unknown_provider_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"config\.providers\.v\.class=Vault: known are EnvVarConfigProvider"):
        resolve(properties(v="Vault"))


def test_a_broker_resolves_its_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE", "7")
    texts = properties(env="EnvVarConfigProvider") | {"node.id": "${env:NODE}"}
    assert BrokerConfig.from_properties(texts).node_id == 7
