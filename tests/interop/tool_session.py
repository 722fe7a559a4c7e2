"""Apache Kafka's command line tools in one JVM, one after the other."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, NamedTuple

from tests.interop import jvm

_TOOLS: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}


class ToolResult(NamedTuple):
    """The exit status and output of a tool."""

    status: int
    out: str
    err: str


class ToolSession:
    """A JVM that runs Kafka's tools by the names of their scripts."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self._requests = requests
        self._answers = answers
        self._is_waiting = False

    def __call__(self, script: str, *arguments: str, stdin: str = "") -> ToolResult:
        """Run a tool to its end."""
        assert not self._is_waiting, "an earlier call was interrupted, and its answer would be taken for this one's"
        self._is_waiting = True
        words = [word.encode() for word in (_TOOLS[script], *arguments)]
        self._requests.write(struct.pack(">i", len(words)))
        for word in words:
            self._requests.write(struct.pack(">i", len(word)) + word)
        self._requests.write(struct.pack(">i", len(stdin.encode())) + stdin.encode())
        self._requests.flush()
        (status,) = struct.unpack(">i", self._read(4))
        out, err = (self._read(struct.unpack(">i", self._read(4))[0]).decode() for _ in range(2))
        self._is_waiting = False
        return ToolResult(status, out, err)

    def _read(self, size: int) -> bytes:
        found = self._answers.read(size)
        assert len(found) == size, "the JVM of Kafka's tools has ended"
        return found


@contextmanager
def tool_session() -> Iterator[ToolSession]:
    """Run the JVM for the length of the block."""
    process = subprocess.Popen(
        [
            "java",
            *jvm.QUICK_START,
            "-Xmx384m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp",
            jvm.compiled(),
            "ToolSession",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield ToolSession(process.stdin, process.stdout)  # type: ignore[arg-type]
    finally:
        process.stdin.close()
        jvm.end(process)
        process.stdout.close()
