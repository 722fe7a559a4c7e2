"""The SASL state machine of a connection: no request gets through before the peer is authenticated."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from triokafka.broker_stub.network.sasl_session import MechanismOptions, SaslOptions, SaslSession
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request
from triokafka.security.sasl.plain import PlainServer, PlainUsers
from triokafka.world.system import RealWorld

GOOD = b"\0alice\0secret"


class ClockWorld(RealWorld):
    """A world whose clock the test sets."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds


def frame(request: Request[Any], version: int) -> bytes:
    return b"".join(encode_request(request, version=version, correlation_id=1, client_id="c"))[4:]


def session(max_reauth_ms: int = 0, world: ClockWorld | None = None) -> SaslSession:
    users = PlainUsers({"alice": "secret", "bob": "secret"})
    plain = MechanismOptions(lambda: PlainServer(users.verify), max_reauth_ms)
    return SaslSession(SaslOptions({"PLAIN": plain, "OTHER": plain}), world or ClockWorld())


HANDSHAKE = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
LOGIN = frame(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
METADATA = frame(MetadataRequest(topics=[]), 9)
VERSIONS = frame(ApiVersionsRequest(), 0)


def test_peer_that_logs_in_gets_through() -> None:
    peer = session()
    assert peer.take(VERSIONS) is None
    step = peer.take(HANDSHAKE)
    assert step is not None and step.refusal is None
    assert peer.principal is None
    step = peer.take(LOGIN)
    assert step is not None and step.refusal is None
    assert peer.principal == "User:alice"
    assert peer.is_complete
    assert peer.take(METADATA) is None
    assert peer.take(HANDSHAKE) is None  # the broker's handler refuses it


def test_wrong_password_is_refused_late_and_with_a_reason() -> None:
    peer = session()
    peer.take(HANDSHAKE)
    step = peer.take(frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess"), 2))
    assert step is not None and step.delayed
    _, answer = decode_response(SaslAuthenticateResponse, b"".join(step.parts)[4:], version=2)
    assert (answer.error_code, answer.error_message) == (58, "Authentication failed: Invalid username or password")


def test_unknown_mechanism_gets_the_enabled_ones() -> None:
    step = session().take(frame(SaslHandshakeRequest(mechanism="CRAM-MD5"), 1))
    assert step is not None and step.refusal is not None
    _, answer = decode_response(SaslHandshakeResponse, b"".join(step.parts)[4:], version=1)
    assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN", "OTHER"])


def test_many_requests_without_login_end_the_connection() -> None:
    peer = session()
    steps = [peer.take(VERSIONS) for _ in range(100)]
    assert any(step is not None and step.refusal for step in steps)


def test_session_ends_unless_the_client_logs_in_again_as_the_same_user() -> None:
    world = ClockWorld()
    peer = session(10_000, world)
    peer.take(HANDSHAKE)
    step = peer.take(LOGIN)
    assert step is not None
    _, answer = decode_response(SaslAuthenticateResponse, b"".join(step.parts)[4:], version=2)
    assert answer.session_lifetime_ms == 10_000
    world.seconds = 9.9
    assert peer.take(METADATA) is None
    for mechanism, token in (("PLAIN", b"\0bob\0secret"), ("OTHER", GOOD)):
        other = session(10_000, world)
        other.take(HANDSHAKE)
        other.take(LOGIN)
        steps = [
            other.take(frame(SaslHandshakeRequest(mechanism=mechanism), 1)),
            other.take(frame(SaslAuthenticateRequest(auth_bytes=token), 2)),
        ]
        assert any(step is not None and step.refusal for step in steps)
    peer.take(HANDSHAKE)
    peer.take(LOGIN)
    world.seconds = 19.8
    assert peer.take(METADATA) is None
    world.seconds = 20
    step = peer.take(METADATA)
    assert step is not None and step.refusal is not None and "expired" in step.refusal


PIECES = st.one_of(
    st.sampled_from([HANDSHAKE, VERSIONS, METADATA, frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0no"), 1)]),
    st.sampled_from([LOGIN[:9], HANDSHAKE[:-1], HANDSHAKE + b"\0", b"\0\x11\0\x07" + HANDSHAKE[4:], b"\0\x24\0\x09"]),
    st.binary(max_size=40),
)


@given(st.lists(PIECES, max_size=12))
@settings(deadline=None)
def test_nothing_but_api_versions_gets_through_without_the_right_token(frames: list[bytes]) -> None:
    peer = session()
    for one in frames:
        step = peer.take(one)
        if step is None:
            assert int.from_bytes(one[:2], "big") == 18
        elif step.refusal is not None:
            break
    assert peer.principal is None


def test_a_session_may_be_renewed_any_number_of_times() -> None:
    world = ClockWorld()
    peer = session(1_000, world)
    for _ in range(200):
        for part in (HANDSHAKE, LOGIN):
            step = peer.take(part)
            assert step is not None and step.refusal is None, step
        assert peer.is_complete
        assert peer.take(METADATA) is None


def test_each_renewal_has_the_limit_of_requests_again() -> None:
    peer = session(1_000)
    peer.take(HANDSHAKE)
    peer.take(LOGIN)
    peer.take(HANDSHAKE)
    step = peer.take(METADATA)
    assert step is not None and step.refusal is not None  # nothing but SaslAuthenticate until it is complete
