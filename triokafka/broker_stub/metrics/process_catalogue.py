"""The metrics of the node's process, with the names of Prometheus' client libraries and of Kafka."""

from __future__ import annotations

from collections.abc import Iterator

from triokafka.broker_stub.metrics.recent_share import RecentShare
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.world import World


class ProcessMetrics:
    """Reads the metrics of the process. Call `samples` in the event loop's thread: its share of time is measured."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._started_at = world.now()
        usage = world.process_usage()
        self._before = 0.0 if usage is None else usage.thread_seconds
        self._loop = RecentShare(self._started_at)

    def samples(self, server: str) -> Iterator[Sample]:
        """Yield the current values that the system has; ``server`` is ``KafkaServer`` or ``ControllerServer``."""
        usage = self._world.process_usage()
        if usage is None:
            return
        busy = self._loop.measure(usage.thread_seconds - self._before, self._world.now())
        yield Sample("kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent", {}, 1 - busy)
        yield Sample("process:type=cpu,name=seconds-total", {}, usage.processor_seconds)
        for name, value in (
            ("process:type=resident,name=memory-bytes", usage.resident_bytes),
            ("process:type=open,name=fds", usage.open_files),
            ("process:type=max,name=fds", usage.most_open_files),
            ("process:type=start,name=time-seconds", usage.started_at),
            (f"kafka.server:type={server},name=linux-disk-read-bytes", usage.read_bytes),
            (f"kafka.server:type={server},name=linux-disk-write-bytes", usage.written_bytes),
        ):
            if value is not None:
                yield Sample(name, {}, value)
