"""``triokafka log repair`` on the files of a real broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from triokafka.records import iter_batches


def _triokafka(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "triokafka", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_broker_refuses_damaged_metadata_until_it_is_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    log = folder / f"{0:020d}.log"
    broker = BrokerProcess(tmp_path)
    bootstrap = broker.start()
    for name in ("one", "two", "three"):
        done = _triokafka("topics", "create", name, "--bootstrap-server", bootstrap)
        assert done.returncode == 0, done.stderr
    assert broker.stop() == 0
    content = bytearray(log.read_bytes())
    places = [info.position for info in iter_batches(bytes(content))]
    bad = places[len(places) // 2]
    content[bad + 70] ^= 1
    log.write_bytes(content)
    refused = _triokafka("broker", f"--data-dir={tmp_path}", "--listen", "127.0.0.1:0")
    assert refused.returncode == 1
    assert f"{log} is damaged at byte {bad}" in refused.stderr
    assert f"triokafka log repair {folder}" in refused.stderr
    repaired = _triokafka("log", "repair", str(folder))
    assert repaired.returncode == 0, repaired.stderr
    assert f"kept {log}.{bad}.damaged" in repaired.stdout
    try:
        broker.start()
    finally:
        broker.close()
