"""`KafkaAdminClient`: kafka-python's admin client over the SDK's."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

import triokafka
from triokafka.blocking.admin.cluster import ClusterPart
from triokafka.blocking.admin.configs import ConfigPart
from triokafka.blocking.admin.groups import GroupPart
from triokafka.blocking.admin.partitions import PartitionPart
from triokafka.blocking.admin.session import AdminSession
from triokafka.blocking.admin.topics import TopicPart
from triokafka.blocking.bootstrap import bootstrap
from triokafka.blocking.options import API_VERSION, NETWORK, network_options, take
from triokafka.errors import ConfigurationError
from triokafka.loop_thread import loop_thread


class KafkaAdminClient(TopicPart, PartitionPart, ConfigPart, GroupPart, ClusterPart):
    """Manages a Kafka cluster; kafka-python's interface.

    Keyword arguments are kafka-python's configuration with its defaults (``DEFAULT_CONFIG``). The constructor waits
    until a broker of ``bootstrap_servers`` answers, at most ``bootstrap_timeout_ms``. May be used by any number of
    threads. Calls wait at most their ``timeout_ms``, ``request_timeout_ms`` by default, and try again what failed for a
    passing reason until then.

    Raises:
        KafkaConfigurationError: a name or value that cannot be used, or security that is not there.
        KafkaTimeoutError: no broker answered.
        UnsupportedVersionError: of calls that the SDK or the broker does not have yet.
    """

    DEFAULT_CONFIG: Final[dict[str, Any]] = {
        **NETWORK,
        "bootstrap_servers": "localhost",
        "client_id": f"triokafka-{triokafka.__version__}",
    }

    _closed = True  # so that one whose constructor failed, or was not called, is taken for closed

    def __init__(self, **configs: Any) -> None:
        unknown = set(configs) - set(self.DEFAULT_CONFIG)
        if unknown:
            raise ConfigurationError(f"Unrecognized configs: {unknown}")
        self.config = take(self.DEFAULT_CONFIG, configs)
        options = {**network_options(self.config), "close_timeout_ms": 0}
        loop = loop_thread()
        bootstrap(loop, self.config, self.config["bootstrap_timeout_ms"])
        self.config["api_version"] = self.config["api_version"] or API_VERSION
        self._session = AdminSession(loop, options)
        loop.call(self._session.open)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            self._closed = True
            self._session.abandon()

    def close(self) -> None:
        """End it; does nothing when it has ended already."""
        if not self._closed:
            self._closed = True
            self._session.end()
