"""Spark writes to and reads from a broker with TLS and SASL, with Java's options and stores; no output shows
a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess, free_port
from tests.unit.security.test_key_stores import KEY_STORE, TRUST_STORE

PASSWORD = "hunter2 of spark"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The options of both directions for a broker with SASL_SSL."""
    (tmp_path / "own.jks").write_bytes(KEY_STORE)
    (tmp_path / "trust.jks").write_bytes(TRUST_STORE)
    config = tmp_path / "server.properties"
    config.write_text(
        f"listeners=SASL_SSL://127.0.0.1:{free_port()}\ninter.broker.listener.name=SASL_SSL\n"
        "listener.security.protocol.map=SASL_SSL:SASL_SSL\n"
        "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n"
        f'plain.sasl.jaas.config={MODULE} required username="b" password="b" user_b="b" user_alice="{PASSWORD}";\n'
        f"ssl.keystore.location={tmp_path / 'own.jks'}\nssl.keystore.password=changeit\nssl.key.password=keypass\n"
        f"ssl.truststore.location={tmp_path / 'trust.jks'}\n"
    )
    process = BrokerProcess(None, config=config)
    yield {
        "kafka.bootstrap.servers": process.start(),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="{PASSWORD}";',
        "kafka.ssl.truststore.type": "JKS",
        "kafka.ssl.truststore.location": str(tmp_path / "trust.jks"),
        "kafka.ssl.truststore.password": "changeit",
    }
    assert process.stop() == 0


def test_spark_writes_and_reads_over_tls(
    spark: Any, secured: dict[str, str], capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    rows = spark.range(20).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("triokafka").options(**secured).option("topic", "secured").mode("append").save()
    read = spark.read.format("triokafka").options(**secured).option("subscribe", "secured").load()
    read.explain(True)
    found = sorted(int(row.value) for row in read.selectExpr("CAST(value AS STRING)").collect())
    assert found == list(range(20))
    with pytest.raises(Exception) as raised:
        wrong = {**secured, "kafka.sasl.jaas.config": secured["kafka.sasl.jaas.config"].replace("hunter2", "guessed")}
        spark.read.format("triokafka").options(**wrong).option("subscribe", "secured").load().collect()
    assert "Invalid username or password" in str(raised.value)
    shown = "".join(capfd.readouterr()) + caplog.text + str(raised.value)
    assert "Scan" in shown or "Batch" in shown  # the plans are printed
    assert not any(secret in shown for secret in ("hunter2", "guessed", "changeit"))
