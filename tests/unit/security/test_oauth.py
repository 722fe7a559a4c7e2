"""Tokens for OAUTHBEARER: when they are replaced, which addresses are allowed, and which keys verify them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OctKey, RSAKey

from tests.support.token_server import TokenServer
from triokafka.errors import ConfigurationError, SaslAuthenticationFailedError
from triokafka.security.oauth.allow_list import FILES_VARIABLE, URLS_VARIABLE, read_allow_list
from triokafka.security.oauth.endpoint import OAuthEndpoint, check_scheme
from triokafka.security.oauth.grant_requests import with_secret
from triokafka.security.oauth.jwks_validator import JwksValidator, KeyRefresh
from triokafka.security.oauth.options import OAuthSettings, retrieved_tokens
from triokafka.security.oauth.refresh_window import RefreshWindow
from triokafka.security.oauth.retrieved_tokens import RetrievedTokens
from triokafka.security.oauth.token_claims import ClaimRules
from triokafka.security.oauth.verification_keys import UnusableKeysError, VerificationKeys
from triokafka.security.sasl.oauthbearer import InvalidTokenError, UnsecuredValidator, check_extensions, unsecured_token
from triokafka.world.system import RealWorld

HOUR_MS = 3_600_000


@given(
    now=st.integers(0, 10**13),
    life=st.integers(1, 10 * HOUR_MS),
    age=st.integers(0, HOUR_MS),
    random=st.floats(0, 1),
)
def test_a_token_is_replaced_after_its_receipt_and_before_its_expiry(
    now: int, life: int, age: int, random: float
) -> None:
    window = RefreshWindow()
    at = window.refresh_at_ms(now_ms=now, begins_ms=max(0, now - age), expires_ms=now + life, random=random)
    assert now <= at <= now + life
    if life > 360_000:  # both limits fit
        assert now + 60_000 <= at <= now + life - 300_000


def test_the_window_is_kafkas() -> None:
    def at(life_s: int, random: float = 0.0) -> float:
        return RefreshWindow().refresh_at_ms(now_ms=0, begins_ms=None, expires_ms=life_s * 1000, random=random) / 1000

    assert (at(3600), at(3600, 1)) == (2880, 3060)
    assert at(1000) == 700  # 80 % is inside the buffer of 300 s
    assert at(300) == 240  # both limits are ignored
    early = RefreshWindow().refresh_at_ms(now_ms=0, begins_ms=-(10**7), expires_ms=400_000, random=0.0)
    assert early == 60_000  # at least a minute after the last one


def test_an_unknown_key_id_is_a_reason_to_load_keys_once() -> None:
    refresh = KeyRefresh()
    assert refresh.unknown("a", 0) and not refresh.unknown("a", 1)
    assert not refresh.unknown("b", 5)  # shortly after the last one
    assert refresh.unknown("b", 11) and not refresh.unknown("a", 30)
    assert refresh.unknown("a", 61)
    assert not refresh.unknown("x" * 1001, 1000)
    assert all(refresh.unknown(f"k{number}", 2000 + 11 * number) for number in range(50))
    assert len(refresh._unknown) <= 16


def test_the_environment_overrules_the_allow_list_of_the_options() -> None:
    def check(url: str, environment: Mapping[str, str]) -> None:
        listed = read_allow_list(
            "http://a, http://b", "/f", urls_option="urls", files_option="files", environment=environment
        )
        listed.check_url(url, "option")

    check("http://b", {})
    check("http://c", {URLS_VARIABLE: "http://c"})
    for url, environment in (("http://c", {}), ("http://a", {URLS_VARIABLE: ""}), ("http://a/", {})):
        with pytest.raises(ConfigurationError, match=f"^option: the URL {url} is not allowed. Add it to urls"):
            check(url, environment)
    with pytest.raises(ConfigurationError, match=FILES_VARIABLE):
        read_allow_list(None, "/f", urls_option="u", files_option="f", environment={}).check_file("/g", "option")


@pytest.mark.parametrize("url", ["", "ftp://h/x", "http:///x", "file:", "http://h:port/", "h/x"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a URL"):
        check_scheme(url, "option")


def test_credentials_do_not_appear_in_representations() -> None:
    request = with_secret("id", "the secret", "scope", encoded=False)
    assert "secret" not in repr(request) and request.headers["Authorization"] == "Basic aWQ6dGhlIHNlY3JldA=="
    assert request.body == b"grant_type=client_credentials&scope=scope"
    encoded = with_secret("ü d", "s+ c", None, encoded=True)
    assert encoded.headers["Authorization"] == "Basic JUMzJUJDK2Q6cyUyQitj"  # %C3%BC+d:s%2B+c


def options(**values: Any) -> OAuthSettings:
    texts = {name.replace("_", "."): value for name, value in values.items()}
    return OAuthSettings(texts.get, str, {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sasl_login_refresh_window_factor": 0.4}, "expected a number from 0.5 to 1"),
        ({"sasl_login_read_timeout_ms": "soon"}, "expected a number from 1"),
        ({"sasl_oauthbearer_jwt_retriever_class": "com.example.Mine"}, "known are DefaultJwtRetriever"),
        ({"sasl_oauthbearer_jwt_retriever_class": "FileJwtRetriever"}, "does not fit"),
        ({"sasl_oauthbearer_client_credentials_client_secret": " "}, "needs sasl.oauthbearer.client.credentials.cl"),
        ({"sasl_oauthbearer_header_urlencode": "maybe"}, "expected true or false"),
        ({"sasl_oauthbearer_assertion_claim_iss": "x"}, "needs sasl.oauthbearer.assertion.private.key.file"),
        (
            {"sasl_oauthbearer_assertion_claim_iss": "x", "sasl_oauthbearer_assertion_algorithm": "none"},
            "known are RS256, ES256",
        ),
    ],
)
def test_wrong_options_are_named(changes: dict[str, Any], words: str) -> None:
    right = {
        "sasl_oauthbearer_token_endpoint_url": "http://h/token",
        "org_apache_kafka_sasl_oauthbearer_allowed_urls": "http://h/token",
        "sasl_oauthbearer_client_credentials_client_id": "id",
        "sasl_oauthbearer_client_credentials_client_secret": "the secret",
    }
    assert retrieved_tokens(options(**right)) is not None
    with pytest.raises(ConfigurationError, match=words) as raised:
        retrieved_tokens(options(**right | changes))
    assert "the secret" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:Key size")
def test_keys_that_cannot_verify_are_left_out() -> None:
    good = ECKey.generate_key("P-256").as_dict(private=False)
    keys = [
        OctKey.generate_key(256).as_dict(),
        RSAKey.generate_key(1024).as_dict(private=False),
        good | {"use": "enc"},
        good | {"y": good["x"]},
        {"kty": "RSA"},
        {"kty": "other"},
        "no object",
    ]
    with pytest.raises(UnusableKeysError, match="none of the 7 keys"):
        VerificationKeys(json.dumps({"keys": keys}).encode())
    assert len(VerificationKeys(json.dumps({"keys": [*keys, good]}).encode())) == 1
    for document in (b"", b"[]", b'{"keys": 1}', b"{" * 100_000):
        with pytest.raises(UnusableKeysError, match="not a JSON Web Key Set"):
            VerificationKeys(document)


def test_a_key_is_used_with_its_own_algorithm_only() -> None:
    server = TokenServer()
    key = server.key.as_dict(private=False)
    with pytest.raises(InvalidTokenError, match="no key of the JWKS fits"):
        VerificationKeys(json.dumps({"keys": [key | {"alg": "PS256"}]}).encode()).verify(server.token())
    without_id = {name: value for name, value in key.items() if name != "kid"}
    with pytest.raises(InvalidTokenError, match="with the key id 'first'"):
        VerificationKeys(json.dumps({"keys": [without_id]}).encode()).verify(server.token())


async def test_keys_come_from_a_file_and_stay_when_it_is_broken(tmp_path: Path) -> None:
    server, file = TokenServer(), tmp_path / "keys.json"
    endpoint = OAuthEndpoint(f"file://{file}", "option")
    rules = ClaimRules(audiences=frozenset({"kafka"}))
    validator = JwksValidator(RealWorld(), endpoint, rules, refresh_ms=1)
    with pytest.raises(InvalidTokenError, match="not loaded yet"):
        validator(server.token())
    with pytest.raises(ConfigurationError, match=f"option: {file} cannot be read"):
        await validator.load()
    file.write_bytes(server.jwks())
    await validator.load()
    assert validator(server.token()).principal == "alice"
    file.write_bytes(b"broken")
    with trio.move_on_after(0.2):
        await validator.run()
    assert validator(server.token()).principal == "alice"


class LateWorld(RealWorld):
    """A world whose clock is ``late_ms`` ahead."""

    late_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.late_ms


async def test_valid_token_stays_in_use_while_the_next_one_is_unavailable(tmp_path: Path) -> None:
    server, file, world = TokenServer(), tmp_path / "token", LateWorld()
    server.lifetime = 60
    file.write_text(server.token())
    url = f"file://{file}"
    tokens = retrieved_tokens(
        options(sasl_oauthbearer_token_endpoint_url=url, org_apache_kafka_sasl_oauthbearer_allowed_urls=url)
    )
    assert isinstance(tokens, RetrievedTokens)
    first = await tokens.token(world)
    file.write_text("opaque")
    assert await tokens.token(world) == first
    assert first not in repr(tokens)
    world.late_ms = 59_000
    assert await tokens.token(world) == first
    world.late_ms = 61_000
    with pytest.raises(SaslAuthenticationFailedError, match="the token is not a JWT") as raised:
        await tokens.token(world)
    assert "opaque string" in str(raised.value)


@pytest.mark.parametrize("value", [math.inf, math.nan, True, "1", 1e15])
def test_impossible_times_are_invalid(value: Any) -> None:
    validate = UnsecuredValidator(lambda: 0)
    with pytest.raises(InvalidTokenError, match="not a number of seconds"):
        validate(unsecured_token({"sub": "a", "exp": value}))


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a-b": "x"}, {"a": ""}, {"a": "\x01"}, {"": "x"}, {"a": "ü"}])
def test_extensions_that_would_break_the_message_are_refused(extensions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="SASL extension"):
        check_extensions(extensions)
