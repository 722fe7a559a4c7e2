"""SASL mechanisms: both ends together, known answers of the RFCs, and messages that break the rules."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.errors import ConfigurationError, SaslAuthenticationFailedError
from triokafka.security.jaas import parse_jaas
from triokafka.security.sasl.oauthbearer import (
    InvalidTokenError,
    OAuthBearerClient,
    OAuthBearerServer,
    UnsecuredValidator,
    unsecured_token,
)
from triokafka.security.sasl.plain import PlainClient, PlainServer, PlainUsers
from triokafka.security.sasl.scram import ScramClient, ScramServer, make_credential
from triokafka.security.scram_credentials import ScramCredential, ScramMechanism
from triokafka.testing.security import FixedScramCredentials

SHA_256 = ScramMechanism.SCRAM_SHA_256


def plain(token: bytes, users: dict[str, str]) -> PlainServer:
    server = PlainServer(PlainUsers(users).verify)
    assert server.evaluate(token) == b""
    return server


def test_plain_token_has_an_empty_authorization_id() -> None:
    assert PlainClient("xiaoming", "xiaoming").first() == b"\0xiaoming\0xiaoming"
    assert plain(b"\0xiaoming\0xiaoming", {"xiaoming": "xiaoming"}).user == "xiaoming"
    assert plain(b"xiaoming\0xiaoming\0xiaoming", {"xiaoming": "xiaoming"}).user == "xiaoming"


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (b"\0a", "expected 3 tokens, got 2"),
        (b"\0a\0b\0c", "expected 3 tokens, got 4"),
        (b"\0\0b", "username not specified"),
        (b"\0a\0", "password not specified"),
        (b"\0a\0wrong", "Invalid username or password"),
        (b"\0nobody\0b", "Invalid username or password"),
        (b"root\0a\0b", "different from username"),
        (b"\0\xff\0b", "not UTF-8"),
    ],
)
def test_plain_refuses(token: bytes, words: str) -> None:
    server = PlainServer(PlainUsers({"a": "b"}).verify)
    with pytest.raises(SaslAuthenticationFailedError, match=words):
        server.evaluate(token)
    assert server.user is None


class Rfc7677:
    """The credentials of the example in RFC 7677 section 3."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
        return make_credential(mechanism, "pencil", salt, 4096) if user == "user" else None


def test_scram_computes_the_example_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", random_bytes=lambda size: b"")
    client._nonce = "rOprNGfwEbeRWgbNEkqO"
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = client.answer(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert client.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def scram_pair(
    user: str, password: str, users: dict[str, str], mechanism: ScramMechanism = SHA_256
) -> tuple[ScramClient, ScramServer]:
    client = ScramClient(mechanism, user, password, random_bytes=lambda size: b"c" * size)
    server = ScramServer(
        mechanism, FixedScramCredentials(users), random_bytes=lambda size: b"s" * size, unknown_user_key=b"k"
    )
    return client, server


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "名前"])
def test_scram_ends_agree(mechanism: ScramMechanism, user: str) -> None:
    client, server = scram_pair(user, "pässword", {user: "pässword"}, mechanism)
    proof = client.answer(server.evaluate(client.first()))
    assert proof is not None
    assert server.user is None
    assert client.answer(server.evaluate(proof)) is None
    assert server.user == user


def test_scram_answers_an_unknown_user_as_a_wrong_password() -> None:
    answers = []
    for user, password in (("alice", "wrong"), ("mallory", "secret")):
        client, server = scram_pair(user, password, {"alice": "secret"})
        first = server.evaluate(client.first())
        proof = client.answer(first)
        assert proof is not None
        with pytest.raises(SaslAuthenticationFailedError) as raised:
            server.evaluate(proof)
        answers.append((str(raised.value), len(first)))
    assert answers[0][0] == answers[1][0]


def test_scram_client_refuses_a_server_that_does_not_know_the_password() -> None:
    client, server = scram_pair("alice", "secret", {"alice": "secret"})
    client.answer(server.evaluate(client.first()))
    with pytest.raises(SaslAuthenticationFailedError, match="impostor"):
        client.answer(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("r=other,s=AAAA,i=4096", "does not continue"),
        ("r={nonce}x,s=AAAA,i=1", "asks for 1 SCRAM iterations"),
        ("r={nonce}x,s=AAAA,i=2000000000", "asks for 2000000000"),
        ("r={nonce},s=AAAA,i=4096", "does not continue"),
        ("e=other-error", "invalid"),
    ],
)
def test_scram_client_refuses_a_bad_first_message(first: str, words: str) -> None:
    client, _ = scram_pair("alice", "secret", {})
    client.first()
    with pytest.raises(SaslAuthenticationFailedError, match=words):
        client.answer(first.replace("{nonce}", client._nonce).encode())


@given(st.lists(st.one_of(st.binary(max_size=60), st.just(b"n,,n=alice,r=abc"), st.just(b"c=biws,r=abc,p=AAAA"))))
def test_scram_server_only_refuses_whatever_it_gets(tokens: list[bytes]) -> None:
    _, server = scram_pair("alice", "secret", {"alice": "secret"})
    for token in tokens:
        try:
            server.evaluate(token)
        except SaslAuthenticationFailedError:
            break
    assert server.user is None


def oauth(token: str, now_ms: int = 0, **options: int) -> OAuthBearerServer:
    server = OAuthBearerServer(UnsecuredValidator(lambda: now_ms, **options))  # type: ignore[arg-type]
    client = OAuthBearerClient(token, {"trace": "1"})
    challenge = server.evaluate(client.first())
    answer = client.answer(challenge)
    if answer is not None:
        with pytest.raises(SaslAuthenticationFailedError):
            server.evaluate(answer)
    return server


def test_unsecured_token_gives_its_subject_and_its_expiry() -> None:
    server = oauth(unsecured_token({"sub": "alice", "exp": 10}), 9_999)
    assert (server.user, server.expires_at_ms) == ("alice", 10_000)


@pytest.mark.parametrize(
    "claims",
    [{"sub": "alice", "exp": 10}, {"sub": "alice"}, {"exp": 99}, {"sub": "a", "exp": 99, "nbf": 50}, {"sub": 1}],
)
def test_unsecured_token_is_refused_without_subject_or_outside_its_time(claims: dict[str, object]) -> None:
    assert oauth(unsecured_token(claims), 10_000).user is None


def test_clock_skew_is_tolerated() -> None:
    assert oauth(unsecured_token({"sub": "a", "exp": 10}), 10_500, clock_skew_ms=1000).user == "a"


@pytest.mark.parametrize("token", ["", "x", "a.b", "e30.e30.", "!.!.", "eyJhbGciOiJSUzI1NiJ9.e30.sig"])
def test_other_tokens_are_invalid(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        UnsecuredValidator(lambda: 0)(token)


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al\\"ice" password=p user_b="x;=y";'


def test_jaas_text_is_a_module_with_options() -> None:
    module = parse_jaas(JAAS)
    assert module.name == "PlainLoginModule"
    assert {name: value.reveal() for name, value in module.options.items()} == {  # type: ignore[attr-defined]
        "username": 'al"ice',
        "password": "p",
        "user_b": "x;=y",
    }
    assert "x;=y" not in repr(module)


@pytest.mark.parametrize(
    "text",
    ["", "x", "X required", "X required a=b", "X maybe a=b;", 'X required a="b;', "X required a b;", "X required a=;"],
)
def test_broken_jaas_text_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_jaas(text.replace("b", "hunter2"))
    assert "hunter2" not in str(raised.value)
