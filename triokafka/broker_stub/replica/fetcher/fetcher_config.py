"""The options of replica fetchers."""

from __future__ import annotations

from triokafka.named_tuple import NamedTuple


class FetcherConfig(NamedTuple):
    """The options of fetchers; names and meaning are Kafka's, without the prefix ``replica.``. Times are in ms."""

    fetch_wait_max_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 1_048_576
    fetch_response_max_bytes: int = 10_485_760
    fetch_backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000
    num_fetchers: int = 1
