"""The parsed configuration of one log; `topic_config` explains each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from triokafka.broker_stub.log.config_definition import ConfigType, LogConfigDefinition
from triokafka.broker_stub.log.topic_config import DEFINITIONS, definition_of, parse_topic_config
from triokafka.named_tuple import NamedTuple

__all__ = ["DEFINITIONS", "ConfigType", "LogConfig", "LogConfigDefinition", "definition_of", "parse_topic_config"]

_MAX_LONG: Final = 2**63 - 1
_DAY_MS: Final = 86_400_000
_SEGMENT_OVERRIDE: Final = "internal_segment_bytes"


class LogConfig(NamedTuple):
    """The configuration of one log. The fields are the keys of `DEFINITIONS` in Python's spelling, with Kafka's units.

    `from_properties` checks ranges. The constructor does not, so that a test may use segments of 100 bytes.
    """

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _MAX_LONG
    flush_ms: int = _MAX_LONG
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = _MAX_LONG
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = _MAX_LONG
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False

    @property
    def compacts(self) -> bool:
        """Whether ``cleanup.policy`` includes ``compact``."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether ``cleanup.policy`` includes ``delete``."""
        return "delete" in self.cleanup_policy

    @property
    def codec(self) -> str | None:
        """The topic's codec; None if batches keep the producer's."""
        if self.compression_type == "producer":
            return None
        return "none" if self.compression_type == "uncompressed" else self.compression_type

    @property
    def compression_level(self) -> int | None:
        """The level of the topic's codec; None for its default."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        level = levels.get(self.compression_type)
        return None if level == -1 else level

    @property
    def roll_after_ms(self) -> int:
        """The highest age of the active segment. Only sealed segments can be compacted within
        ``max.compaction.lag.ms``.
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def stamps_on_append(self) -> bool:
        """Whether the broker sets timestamps on append (``message.timestamp.type=LogAppendTime``)."""
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str | None], *, base: LogConfig | None = None, suggests: bool = True
    ) -> LogConfig:
        """``base`` (Kafka's defaults when None) with the topic configuration ``properties`` on top.

        ``suggests``: an error about an unknown key has the nearest known one, which takes milliseconds to find.

        Raises:
            InvalidConfigurationError: an unknown key (with the nearest known one), or a value out of its range.
        """
        known = cls() if base is None else base
        return known.with_values(parse_topic_config(properties, suggests=suggests)) if properties else known

    @classmethod
    def of_topic(cls, configs: Mapping[str, str | None], *, base: LogConfig) -> LogConfig:
        """Return ``base`` with the configuration of an existing topic on top.

        The controller has checked the configuration. Keys that no log uses, such as long lists of throttled replicas,
        are not parsed again.

        Raises:
            InvalidConfigurationError: as `from_properties`, for the other keys.
        """
        used = {name: text for name, text in configs.items() if name not in _OF_NO_LOG}
        return cls.from_properties(used, base=base)

    def with_values(self, values: Mapping[str, Any]) -> LogConfig:
        """This configuration with parsed ``values`` (dotted names) on top."""
        changes = {DEFINITIONS[name].attribute: value for name, value in values.items()}
        override = changes.pop(_SEGMENT_OVERRIDE, None)
        if override is not None:
            changes["segment_bytes"] = override
        return self._replace(**{name: value for name, value in changes.items() if name in self._fields})


_OF_NO_LOG: Final = frozenset(
    name
    for name, definition in DEFINITIONS.items()
    if definition.attribute not in LogConfig._fields and definition.attribute != _SEGMENT_OVERRIDE
)
