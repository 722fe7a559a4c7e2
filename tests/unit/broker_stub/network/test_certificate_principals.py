"""The principal of a TLS connection, from the certificate of the client."""

from __future__ import annotations

import datetime
import ssl
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.broker_stub.network.authentication import AuthenticationFailedError
from triokafka.broker_stub.network.listener_security import certificate_principal
from triokafka.security.principal_mapping import PrincipalMapping


class Peer:
    """A TLS connection whose peer has shown this certificate."""

    def __init__(self, certificate: bytes | None) -> None:
        self._certificate = certificate

    def getpeercert(self, *, binary_form: bool) -> bytes | None:
        assert binary_form
        return self._certificate


def certificate(*subject: x509.NameAttribute[str]) -> bytes:
    """Return a certificate in DER; services that are known by alternative names have an empty subject."""
    key = ec.generate_private_key(ec.SECP256R1())
    begin = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder().subject_name(x509.Name(subject)).issuer_name(x509.Name([]))
    builder = builder.public_key(key.public_key()).serial_number(1).not_valid_before(begin)
    signed = builder.not_valid_after(begin + datetime.timedelta(days=1)).sign(key, SHA256())
    return signed.public_bytes(Encoding.DER)


def principal_of(given: bytes | None, rules: str = "DEFAULT") -> str:
    return certificate_principal(cast(ssl.SSLObject, Peer(given)), PrincipalMapping(rules))


def test_client_with_an_empty_subject_is_not_anonymous() -> None:
    """It has authenticated, and ANONYMOUS may have the permissions of a PLAINTEXT listener between the nodes."""
    assert principal_of(None) == ANONYMOUS
    assert principal_of(certificate()) == "User:"
    assert principal_of(certificate(x509.NameAttribute(NameOID.COMMON_NAME, "app"))) == "User:CN=app"


def test_rules_apply_to_an_empty_subject() -> None:
    assert principal_of(certificate(), "RULE:^$/nobody/") == "User:nobody"
    with pytest.raises(AuthenticationFailedError, match="no rule"):
        principal_of(certificate(), "RULE:^CN=(.+)$/$1/")
