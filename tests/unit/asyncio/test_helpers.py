"""`create_ssl_context` makes a context from PEM files, as aiokafka's does, and from stores of Java."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from tests.unit.security.test_key_stores import KEY_STORE, TRUST_STORE
from triokafka.asyncio.helpers import create_ssl_context
from triokafka.errors import ConfigurationError


class Files:
    """An authority and a certificate for ``localhost``, in PEM and in stores with the password ``changeit``."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        own = authority.issue_cert("localhost")
        chain, key = own.cert_chain_pems[0].bytes(), own.private_key_pem.bytes()
        certificate, ca = (x509.load_pem_x509_certificate(pem) for pem in (chain, authority.cert_pem.bytes()))
        protection = BestAvailableEncryption(b"changeit")
        private: Any = load_pem_private_key(key, None)
        stores = {
            "ca.pem": authority.cert_pem.bytes(),
            "own.pem": chain + key,
            "trust.p12": pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(ca, b"ca")], protection),
            "own.p12": pkcs12.serialize_key_and_certificates(b"own", private, certificate, [ca], protection),
            "own.jks": KEY_STORE,
            "trust.jks": TRUST_STORE,
        }
        for name, content in stores.items():
            (directory / name).write_bytes(content)
        self._directory = directory

    def path(self, name: str) -> str:
        return str(self._directory / name)

    def listener(self, name: str) -> ssl.SSLContext:
        """A listener's context that wants a certificate of its own authority from clients."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self.path(name))
        context.load_cert_chain(self.path("own.pem"))
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("stores"))


def handshake(client: ssl.SSLContext, listener: ssl.SSLContext) -> dict[str, Any] | None:
    """Do a handshake in memory. Return the certificate of the client that the listener saw."""
    to_client, to_listener = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_listener, server_hostname="localhost")
    far = listener.wrap_bio(to_listener, to_client, server_side=True)
    for side in (near, far) * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return far.getpeercert()


@pytest.mark.parametrize("as_given", [str, Path, str.encode])
def test_a_context_from_pem_or_pkcs12_logs_in_on_both_sides(files: Files, as_given: Callable[[str], Any]) -> None:
    for cafile, certfile in (("ca.pem", "own.pem"), ("trust.p12", "own.p12"), ("ca.pem", "own.p12")):
        password = "changeit" if certfile.endswith("p12") else None
        context = create_ssl_context(
            cafile=as_given(files.path(cafile)), certfile=as_given(files.path(certfile)), password=password
        )
        assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
        assert handshake(context, files.listener("ca.pem")), cafile


@pytest.mark.parametrize("password", ["changeit", b"changeit", bytearray(b"changeit"), lambda: "changeit"])
def test_the_password_has_any_form_of_load_cert_chain(files: Files, password: Any) -> None:
    context = create_ssl_context(cafile=files.path("trust.p12"), password=password)
    assert len(context.get_ca_certs()) == 1


def test_a_store_replaces_the_authorities_of_the_system_and_joins_the_given_ones(files: Files) -> None:
    assert create_ssl_context(cafile=files.path("trust.jks")).cert_store_stats()["x509"] == 1
    more = Path(files.path("ca.pem")).read_text()
    both = create_ssl_context(cafile=files.path("trust.jks"), cadata=more)
    assert both.cert_store_stats()["x509"] == 2


def test_errors_of_key_stores_do_not_show_passwords(files: Files, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.p12"
    damaged.write_bytes(Path(files.path("own.p12")).read_bytes()[:200])
    for options, reason in (
        ({"certfile": files.path("own.p12"), "password": "wr0ng"}, "certfile: .*password"),
        ({"certfile": files.path("own.p12")}, "certfile: .*password"),
        ({"cafile": files.path("trust.p12"), "password": "wr0ng"}, "cafile: .*password"),
        ({"certfile": files.path("trust.jks"), "password": "changeit"}, "no private key"),
        ({"certfile": str(damaged), "password": "changeit"}, "truncated|damaged"),
        ({"cafile": files.path("trust.p12"), "password": b"\xff"}, "not text"),
    ):
        with pytest.raises(ConfigurationError, match=reason) as raised:
            create_ssl_context(**options)
        assert "wr0ng" not in str(raised.value)
    with pytest.raises(FileNotFoundError):
        create_ssl_context(cafile=str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        create_ssl_context(certfile=str(tmp_path / "none"))


def test_the_jks_key_has_its_own_password(files: Files, tmp_path: Path) -> None:
    # The store's password is changeit, its key's is keypass: one option cannot be both.
    with pytest.raises(ConfigurationError, match="password"):
        create_ssl_context(certfile=files.path("own.jks"), password="changeit")
