"""The imports of Spark's processes at their start."""

from __future__ import annotations

import subprocess
import sys


def test_the_process_that_requests_offsets_imports_nothing_that_only_tasks_need() -> None:
    """It is started for every streaming query, which waits for it."""
    code = "import sys, triokafka, triokafka.spark.reading.topic_stream_reader, triokafka.spark.reading.topic_reader; "
    code += "triokafka.AdminClient; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "triokafka.client.admin" in imported
    assert not {"triokafka.client.consumer", "triokafka.records.decoder", "triokafka.formats", "pandas"} & set(imported)
