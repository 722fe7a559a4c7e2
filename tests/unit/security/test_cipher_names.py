"""Ciphers by Java's and by OpenSSL's names."""

from __future__ import annotations

import ssl

import pytest

from triokafka.security.cipher_names import UnknownCipherError, choose_ciphers


def chosen(names: str, *, most: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> set[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = most
    choose_ciphers(context, names)
    if context.minimum_version == ssl.TLSVersion.TLSv1_3:
        return set()
    return {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_CCM_8", "DHE-RSA-AES256-CCM8"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_names_of_java_and_of_openssl_choose_a_cipher(java: str, openssl: str) -> None:
    assert chosen(java) == {openssl}
    assert chosen(f"TLS_AES_256_GCM_SHA384, {java}") == {openssl}


def test_ciphers_of_tls_1_3_alone_leave_tls_1_3_alone() -> None:
    assert chosen("TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256") == set()
    with pytest.raises(UnknownCipherError, match="not enabled"):
        chosen("TLS_AES_256_GCM_SHA384", most=ssl.TLSVersion.TLSv1_2)


def test_unknown_name_of_java_is_refused_beside_known_ones() -> None:
    known = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    for unknown in (
        "TLS_RSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_AES_512_GCM_SHA384",
        "TLS_X_WITH_AES_256_GCM_SHA384",
    ):
        with pytest.raises(UnknownCipherError, match=unknown):
            chosen(f"{known},{unknown}")
    with pytest.raises(UnknownCipherError, match="none of these"):
        chosen("rot13")
