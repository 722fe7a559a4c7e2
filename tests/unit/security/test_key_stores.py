"""Key stores written by Java's keytool and by the package cryptography, and the errors about wrong ones."""

from __future__ import annotations

import base64
import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from triokafka.errors import ConfigurationError
from triokafka.security.jks import DamagedStoreError, WrongPasswordError, read_jks
from triokafka.security.tls import KAFKAS_NAMES, TlsContexts, TlsSettings
from triokafka.world.os_storage import OsStorage

# keytool -genkeypair -alias own -keyalg EC -groupname secp256r1 -storetype JKS -storepass changeit -keypass keypass
#         -dname CN=localhost -ext san=dns:localhost,ip:127.0.0.1 -validity 36500; and its certificate in another store
KEY_STORE = base64.b64decode(
    """
    /u3+7QAAAAIAAAABAAAAAQADb3duAAABog/5TMoAAAB/MH0wDgYKKwYBBAEqAhEBAQUABGvm0dES7+RIk1Jc+Ll15r2wPOFudMY4DEkx/LWAo9p7
    AGi1fxNJTviv0msz5nTANCZxoiUXJnOm5CTCX2cr0mrFUvii14lNX2qyO8jA4911K2tCvjA2dDKLU6xO2oSoWJnobApp/355/PL7AQAAAAEABVgu
    NTA5AAABYzCCAV8wggEEoAMCAQICCQCeVb5Z2PqXcDAKBggqhkjOPQQDAjAUMRIwEAYDVQQDEwlsb2NhbGhvc3QwIBcNMjYxMTI0MjM1MjA1WhgP
    MjEyNjEwMzEyMzUyMDVaMBQxEjAQBgNVBAMTCWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPztqHVNQZ2LXA3x5RcicdQlqJu3
    EJTMf8ZabGLGRGhUlxdJc0A2aWKVeAR/SkpEgm2Uj46M8aMTujpeWo1IfDOjPTA7MB0GA1UdDgQWBBSfGCU7xk6i24Zs+p7oYZJLOd2qzzAaBgNV
    HREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZIzj0EAwIDSQAwRgIhALaUTVG+vWgLfZvTy0Z6tD9KCmARbU6AoRgY+7Zh1WmgAiEAs1MBDm2I
    2/UyN8A4IiOzsnGuzC0iO5Jd9PiNEXI5NhcG66sAOvV1uhdiiA6H4UeTkaXj+g==
    """
)
TRUST_STORE = base64.b64decode(
    """
    /u3+7QAAAAIAAAABAAAAAgACY2EAAAGiD/lRlgAFWC41MDkAAAFjMIIBXzCCAQSgAwIBAgIJAJ5VvlnY+pdwMAoGCCqGSM49BAMCMBQxEjAQBgNV
    BAMTCWxvY2FsaG9zdDAgFw0yNjExMjQyMzUyMDVaGA8yMTI2MTAzMTIzNTIwNVowFDESMBAGA1UEAxMJbG9jYWxob3N0MFkwEwYHKoZIzj0CAQYI
    KoZIzj0DAQcDQgAE/O2odU1BnYtcDfHlFyJx1CWom7cQlMx/xlpsYsZEaFSXF0lzQDZpYpV4BH9KSkSCbZSPjozxoxO6Ol5ajUh8M6M9MDswHQYD
    VR0OBBYEFJ8YJTvGTqLbhmz6nuhhkks53arPMBoGA1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAAATAKBggqhkjOPQQDAgNJADBGAiEAtpRNUb69aAt9
    m9PLRnq0P0oKYBFtToChGBj7tmHVaaACIQCzUwEObYjb9TI3wDgiI7Oyca7MLSI7kl30+I0Rcjk2F56EBwaNDmCQDaq2SglfdM/XKw5X
    """
)


class Stores:
    """One certificate with its key, in every form, in a directory of the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = trustme.CA()
        certificate = self.authority.issue_cert("localhost")
        key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self.key = key
        self.chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        self.own = x509.load_pem_x509_certificate(self.chain)

    def write(self, name: str, content: bytes) -> str:
        path = self.directory / name
        path.write_bytes(content)
        return str(path)

    def key_pem(self, password: str | None = None) -> bytes:
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def pkcs12(self, password: str) -> bytes:
        ca = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        return pkcs12.serialize_key_and_certificates(
            b"own",
            self.key,
            self.own,
            [ca],
            BestAvailableEncryption(password.encode()),
        )


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def context(*, server: bool = False, **settings: Any) -> ssl.SSLContext:
    return TlsContexts(TlsSettings(**settings), server_side=server).context(OsStorage())


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Do a TLS handshake in memory. Raises `ssl.SSLError`."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    for end in ends:
        end.do_handshake()


def test_stores_of_keytool_open_with_their_passwords(stores: Stores) -> None:
    own, trust = stores.write("own.jks", KEY_STORE), stores.write("trust.jks", TRUST_STORE)
    server = context(server=True, chain=own, store_password="changeit", password="keypass")
    shake_hands(context(trust=trust, trust_password="changeit"), server)
    shake_hands(context(trust=trust, trust_password=lambda: "changeit"), server)
    shake_hands(context(trust=trust), server)  # as in Java: without a password, the digest is not checked
    shake_hands(context(trust=own), server)  # the certificates of its keys


def test_pkcs12_and_encrypted_keys_open_with_their_passwords(stores: Stores) -> None:
    p12 = stores.write("own.p12", stores.pkcs12("changeit"))
    chain, key = stores.write("chain.pem", stores.chain), stores.write("key.pem", stores.key_pem("keypass"))
    both = stores.write("both.pem", stores.key_pem("keypass") + stores.chain)
    client = context(trust=stores.authority.cert_pem.bytes().decode())
    forms: tuple[dict[str, Any], ...] = (
        {"chain": p12, "password": "changeit"},
        {"chain": p12, "store_password": "changeit", "password": "keypass"},
        {"chain": chain, "key": key, "password": "keypass"},
        {"chain": both, "password": lambda: "keypass"},
    )
    for settings in forms:
        shake_hands(client, context(server=True, **settings))
    shake_hands(context(trust=p12, trust_password="changeit"), context(server=True, chain=both, password="keypass"))


def test_pem_text_may_begin_with_remarks(stores: Stores) -> None:
    """(``openssl pkcs12 -nodes`` writes lines such as "Bag Attributes" before each part.)"""
    remarks = "Bag Attributes\n    friendlyName: own\nKey Attributes: <No Attributes>\n"
    text = remarks + stores.key_pem().decode() + remarks + stores.chain.decode()
    trust = "subject=CN = authority\n" + stores.authority.cert_pem.bytes().decode()
    shake_hands(context(trust=trust), context(server=True, chain=text))


@pytest.mark.parametrize("lines", [True, False], ids=["in lines", "in one line"])
@pytest.mark.parametrize("option", ["chain", "key", "trust"])
def test_key_that_was_copied_without_its_first_line_is_not_shown(stores: Stores, option: str, lines: bool) -> None:
    body = stores.key_pem().decode().splitlines()[1:-1]
    settings: dict[str, Any] = {"chain": stores.write("good.pem", stores.chain), "server": True}
    given = {**settings, option: ("\n" if lines else "").join(body), "client_auth": "required", "names": KAFKAS_NAMES}
    given.setdefault("trust", stores.write("ca.pem", stores.authority.cert_pem.bytes()))
    given.setdefault("key", stores.write("key.pem", stores.key_pem()))
    with pytest.raises(ConfigurationError, match="neither PEM nor the path of a file") as raised:
        context(**given)
    assert not any(line in str(raised.value) for line in body)


def weak_pem() -> bytes:
    """Return a certificate of its own authority, and its key of 1024 bits."""
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now)
    certificate = made.sign(key, SHA256())
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text + certificate.public_bytes(Encoding.PEM)


def test_every_wrong_store_is_named_with_its_option(stores: Stores) -> None:
    p12, other = stores.pkcs12("changeit"), Stores(stores.directory)
    key, encrypted, chain = stores.key_pem(), stores.key_pem("keypass"), stores.chain
    cases: dict[str, tuple[bytes, dict[str, Any], str]] = {
        "jks-store-password": (KEY_STORE, {"store_password": "hunter2"}, r"password of the store \(ssl_keystore_pas"),
        "jks-key-password": (KEY_STORE, {"store_password": "changeit"}, r"password of its key \(ssl_password\) is wr"),
        "jks-no-password": (KEY_STORE, {}, "needs the password of its key: set ssl_password"),
        "jks-truncated": (KEY_STORE[:-100], {"store_password": "changeit"}, "is a damaged JKS store: .* truncated"),
        "jks-changed": (KEY_STORE[:-30] + b"hunter2" + KEY_STORE[-23:], {"store_password": "changeit"}, "or the store"),
        "jks-of-trust": (TRUST_STORE, {"store_password": "changeit"}, "contains no private key"),
        "jceks": (b"\xce\xce\xce\xce" + KEY_STORE[4:], {}, "is a JCEKS store.*keytool -importkeystore"),
        "p12-password": (p12, {"password": "hunter2"}, r"password of the store \(ssl_keystore_password\) is wrong"),
        "p12-no-password": (p12, {}, "needs the password of the store: set ssl_keystore_password"),
        "p12-truncated": (p12[:-10], {"password": "changeit"}, "is a truncated PKCS #12 store"),
        "p12-damaged": (b"\x30\x03abc", {"password": "changeit"}, "is no PKCS #12 store, or a damaged one"),
        "type": (b"hunter2", {}, "is neither PEM, nor a PKCS #12 or JKS store"),
        "empty": (b"", {}, "is empty"),
        "pem-no-key": (chain, {}, "contains no private key; name the file with ssl_keyfile"),
        "pem-password": (encrypted + chain, {"password": "hunter2"}, r"its password \(ssl_password\) is wrong"),
        "pem-no-password": (encrypted + chain, {}, "is encrypted: set its password with ssl_password"),
        "pem-mismatch": (other.key_pem() + chain, {}, "does not belong to the first certificate of ssl_certfile"),
        "pem-truncated": (key + chain[:300], {}, "one of them is damaged or truncated"),
        "weak": (weak_pem(), {}, r"as too weak \(EE_KEY_TOO_SMALL\): use one with a signature by SHA-256"),
    }
    for name, (content, passwords, words) in cases.items():
        path = stores.write(name, content)
        with pytest.raises(ConfigurationError, match=words) as raised:
            context(chain=path, trust=stores.authority.cert_pem.bytes().decode(), **passwords)
        assert str(raised.value).startswith(f"ssl_certfile: {path} ") or f" in {path} " in str(raised.value), name
        assert "hunter2" not in str(raised.value)
        with pytest.raises(ConfigurationError, match=r"ssl\.k"):
            context(server=True, chain=path, names=KAFKAS_NAMES, **passwords)
    trusts: tuple[tuple[bytes, dict[str, Any], str], ...] = (
        (TRUST_STORE, {"trust_password": "hunter2"}, r"password of the store \(ssl_truststore_password\) is wrong"),
        (p12, {}, "needs the password of the store: set ssl_truststore_password"),
        (key, {}, "contains no certificates"),
        (b"x", {}, "is neither PEM"),
    )
    for content, settings, words in trusts:
        path = stores.write("trust", content)
        with pytest.raises(ConfigurationError, match=words) as raised:
            context(trust=path, **settings)
        assert str(raised.value).startswith(f"ssl_cafile: {path} ")
    with pytest.raises(ConfigurationError, match="ssl_truststore_password: the function for it failed: ZeroDivision"):
        context(trust=path, trust_password=lambda: str(1 // 0))


@given(st.integers(0, len(KEY_STORE) - 1), st.integers(1, 255), st.booleans())
def test_no_damage_of_a_store_goes_unnoticed(at: int, change: int, cut: bool) -> None:
    damaged = KEY_STORE[:at] if cut else KEY_STORE[:at] + bytes([KEY_STORE[at] ^ change]) + KEY_STORE[at + 1 :]
    with pytest.raises((DamagedStoreError, WrongPasswordError)):
        read_jks(damaged, "changeit") if damaged[:4] == KEY_STORE[:4] else _refuse()


def _refuse() -> None:
    raise DamagedStoreError("its first bytes are not those of a JKS store")


def test_a_revoked_certificate_is_refused_at_both_ends(tmp_path: Path) -> None:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    day, name = datetime.timedelta(days=1), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])

    def certificate(subject: x509.Name, public: Any, *, is_authority: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        )
        return builder.sign(key, SHA256())

    authority = certificate(name, key.public_key(), is_authority=True).public_bytes(Encoding.PEM).decode()
    ends = {}
    for end in ("good", "revoked"):
        own = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, end)])
        issued = certificate(subject, own.public_key(), is_authority=False)
        pem = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + issued.public_bytes(Encoding.PEM)
        ends[end] = (issued, pem.decode())
    entry = x509.RevokedCertificateBuilder().serial_number(ends["revoked"][0].serial_number).revocation_date(now - day)
    builder = x509.CertificateRevocationListBuilder().issuer_name(name).last_update(now - day).next_update(now + day)
    file = tmp_path / "revoked.pem"
    file.write_bytes(builder.add_revoked_certificate(entry.build()).sign(key, SHA256()).public_bytes(Encoding.PEM))

    def client(end: str, revoked: str | None = None) -> ssl.SSLContext:
        return context(trust=authority, chain=ends[end][1], revoked=revoked)

    def server(end: str, revoked: str | None = None) -> ssl.SSLContext:
        return context(server=True, trust=authority, chain=ends[end][1], client_auth="required", revoked=revoked)

    shake_hands(client("good", str(file)), server("good", str(file)))
    shake_hands(client("revoked"), server("revoked"))  # revocation is not checked
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        shake_hands(client("good", str(file)), server("revoked"))
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        shake_hands(client("revoked"), server("good", str(file)))
    file.write_text("hunter2")
    with pytest.raises(ConfigurationError, match=f"ssl_crlfile: {file} is not a revocation list in PEM"):
        client("good", str(file))
