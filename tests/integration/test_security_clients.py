"""Third-party clients log in to the broker: every mechanism that they support, with and without TLS, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.login_clients import BY_PASSWORD, USER, WRONG_PASSWORD, Address
from triokafka.testing.blocking import running_broker

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_clients_log_in_with_every_mechanism_and_are_refused_with_a_wrong_password(tls: bool, tmp_path: Path) -> None:
    with running_broker(tls=tls, users={USER: "secret"}, auto_create_topics_enable=True) as broker:
        authority = tmp_path / "ca.pem"
        authority.write_text(broker.client_options().get("ssl_cafile", ""))
        address = Address(broker.bootstrap_servers, broker.client_options()["security_protocol"], authority)
        for name in ("confluent-kafka", "kafka-python", "aiokafka"):
            for mechanism in MECHANISMS:
                BY_PASSWORD[name](address, mechanism, "secret")
            with pytest.raises(PermissionError):
                BY_PASSWORD[name](address, "SCRAM-SHA-256", WRONG_PASSWORD)
