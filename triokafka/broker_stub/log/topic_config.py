"""The configuration of a topic's logs: one table with Kafka's names, types, defaults, limits and descriptions.

`DEFINITIONS` is that table. Parsing, validation and DescribeConfigs use it. Topic keys are Kafka's dotted names
(``retention.ms``). Most have a broker-wide key that gives the default (``log.retention.ms``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from triokafka.broker_stub.log.config_definition import ConfigType, LogConfigDefinition, between, one_of
from triokafka.errors import InvalidConfigurationError

_MAX_LONG: Final = 2**63 - 1
_MAX_INT: Final = 2**31 - 1
_DAY_MS: Final = 86_400_000
_PAIRS: Final = re.compile(r"(?:[0-9]+:[0-9]+(?:,|$))*")


def _cleanup_policy(value: tuple[str, ...]) -> str:
    return one_of("compact", "delete")(value) or ("" if len(set(value)) == len(value) else "names a policy twice")


def _no_tiered_storage(value: bool) -> str:
    if not value:
        return ""
    return "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."


def _throttled(value: tuple[str, ...]) -> str:
    # The list may be long, and is parsed several times for each topic: a loop over its items would take milliseconds.
    valid = value == ("*",) or _PAIRS.fullmatch(",".join(value))
    return "" if valid else "must be the literal '*' or a list of replicas as partition:broker,partition:broker,..."


_T = ConfigType

DEFINITIONS: Final[Mapping[str, LogConfigDefinition]] = {
    definition.name: definition
    for definition in (
        LogConfigDefinition(
            "cleanup.policy",
            _T.LIST,
            ("delete",),
            "What happens to old records: 'delete' drops whole segments by age and size, 'compact' keeps the last "
            "record of each key; both may be given.",
            _cleanup_policy,
            (("log.cleanup.policy", 1),),
        ),
        LogConfigDefinition(
            "compression.gzip.level",
            _T.INT,
            -1,
            "The gzip level when the broker compresses; -1 is zlib's default.",
            lambda value: "" if value == -1 or 1 <= value <= 9 else "Value must be between 1 and 9 or equal to -1",
            (("compression.gzip.level", 1),),
        ),
        LogConfigDefinition(
            "compression.lz4.level",
            _T.INT,
            9,
            "The lz4 level when the broker compresses.",
            between(1, 17),
            (("compression.lz4.level", 1),),
        ),
        LogConfigDefinition(
            "compression.type",
            _T.STRING,
            "producer",
            "The codec of the log: 'producer' keeps the codec of each batch, 'uncompressed' or a codec's "
            "name converts batches with another codec.",
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            (("compression.type", 1),),
        ),
        LogConfigDefinition(
            "compression.zstd.level",
            _T.INT,
            3,
            "The zstd level when the broker compresses.",
            between(-131072, 22),
            (("compression.zstd.level", 1),),
        ),
        LogConfigDefinition(
            "delete.retention.ms",
            _T.LONG,
            _DAY_MS,
            "How long compaction keeps tombstones, so that consumers that started at the beginning see the deletion.",
            between(0),
            (("log.cleaner.delete.retention.ms", 1),),
        ),
        LogConfigDefinition(
            "file.delete.delay.ms",
            _T.LONG,
            60_000,
            "The delay before the files of a deleted segment are removed.",
            between(0),
            (("log.segment.delete.delay.ms", 1),),
        ),
        LogConfigDefinition(
            "flush.messages",
            _T.LONG,
            _MAX_LONG,
            "Sync the log after this many records. By default the operating system decides.",
            between(1),
            (("log.flush.interval.messages", 1),),
        ),
        LogConfigDefinition(
            "flush.ms",
            _T.LONG,
            _MAX_LONG,
            "Sync the log when its oldest unsynced record is this old. By default the operating system decides.",
            between(0),
            (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
        ),
        LogConfigDefinition(
            "follower.replication.throttled.replicas",
            _T.LIST,
            (),
            "Replicas throttled on the follower's side: partition:broker pairs, or *.",
            _throttled,
        ),
        LogConfigDefinition(
            "index.interval.bytes",
            _T.INT,
            4096,
            "The least bytes of records between two index entries.",
            between(0),
            (("log.index.interval.bytes", 1),),
        ),
        LogConfigDefinition(
            "internal.segment.bytes",
            _T.INT,
            None,
            "Overrides segment.bytes without its lower limit, for tests.",
            between(1),
            internal=True,
        ),
        LogConfigDefinition(
            "leader.replication.throttled.replicas",
            _T.LIST,
            (),
            "Replicas throttled on the leader's side: partition:broker pairs, or *.",
            _throttled,
        ),
        LogConfigDefinition(
            "local.retention.bytes", _T.LONG, -2, "Stored without effect: no tiered storage.", between(-2)
        ),
        LogConfigDefinition(
            "local.retention.ms", _T.LONG, -2, "Stored without effect: no tiered storage.", between(-2)
        ),
        LogConfigDefinition(
            "max.compaction.lag.ms",
            _T.LONG,
            _MAX_LONG,
            "The longest time before a record becomes eligible for compaction.",
            between(1),
            (("log.cleaner.max.compaction.lag.ms", 1),),
        ),
        LogConfigDefinition(
            "max.message.bytes",
            _T.INT,
            1_048_588,
            "The largest record batch in bytes, after compression.",
            between(0),
            (("message.max.bytes", 1),),
        ),
        LogConfigDefinition(
            "message.timestamp.after.max.ms",
            _T.LONG,
            3_600_000,
            "How far in the future a record's own timestamp may be, by the broker's clock.",
            between(0),
            (("log.message.timestamp.after.max.ms", 1),),
        ),
        LogConfigDefinition(
            "message.timestamp.before.max.ms",
            _T.LONG,
            _MAX_LONG,
            "How far in the past a record's own timestamp may be, by the broker's clock.",
            between(0),
            (("log.message.timestamp.before.max.ms", 1),),
        ),
        LogConfigDefinition(
            "message.timestamp.type",
            _T.STRING,
            "CreateTime",
            "Whose time a record carries: the producer's (CreateTime) or the broker's at append (LogAppendTime).",
            one_of("CreateTime", "LogAppendTime"),
            (("log.message.timestamp.type", 1),),
        ),
        LogConfigDefinition(
            "min.cleanable.dirty.ratio",
            _T.DOUBLE,
            0.5,
            "Compaction starts when the dirty share of the log exceeds this ratio.",
            between(0, 1),
            (("log.cleaner.min.cleanable.ratio", 1),),
        ),
        LogConfigDefinition(
            "min.compaction.lag.ms",
            _T.LONG,
            0,
            "The shortest time that a record stays uncompacted.",
            between(0),
            (("log.cleaner.min.compaction.lag.ms", 1),),
        ),
        LogConfigDefinition(
            "min.insync.replicas",
            _T.INT,
            1,
            "The number of in-sync replicas that a write with acks=all requires.",
            between(1),
            (("min.insync.replicas", 1),),
        ),
        LogConfigDefinition(
            "preallocate",
            _T.BOOLEAN,
            False,
            "Allocate the disk space of a new segment in advance. Accepted without effect.",
            broker_keys=(("log.preallocate", 1),),
        ),
        LogConfigDefinition("remote.log.copy.disable", _T.BOOLEAN, False, "Stored without effect: no tiered storage."),
        LogConfigDefinition(
            "remote.log.delete.on.disable", _T.BOOLEAN, False, "Stored without effect: no tiered storage."
        ),
        LogConfigDefinition(
            "remote.storage.enable", _T.BOOLEAN, False, "Only false: tiered storage is not built.", _no_tiered_storage
        ),
        LogConfigDefinition(
            "retention.bytes",
            _T.LONG,
            -1,
            "Old segments are deleted while the remaining log has at least this many bytes; -1 for no limit.",
            broker_keys=(("log.retention.bytes", 1),),
        ),
        LogConfigDefinition(
            "retention.ms",
            _T.LONG,
            7 * _DAY_MS,
            "A segment is deleted when its newest record is older than this; -1 for no limit.",
            between(-1),
            (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
        ),
        LogConfigDefinition(
            "segment.bytes",
            _T.INT,
            1_073_741_824,
            "A segment's largest size. Retention and compaction work on whole segments.",
            between(1_048_576),
            (("log.segment.bytes", 1),),
        ),
        LogConfigDefinition(
            "segment.index.bytes",
            _T.INT,
            10_485_760,
            "The largest size of an index; a full index rolls the segment.",
            between(4),
            (("log.index.size.max.bytes", 1),),
        ),
        LogConfigDefinition(
            "segment.jitter.ms",
            _T.LONG,
            0,
            "segment.ms is shortened by up to this much, so that not all segments roll together.",
            between(0),
            (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
        ),
        LogConfigDefinition(
            "segment.ms",
            _T.LONG,
            7 * _DAY_MS,
            "A segment is rolled when its records span this time, even if it is not full.",
            between(1),
            (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
        ),
        LogConfigDefinition(
            "unclean.leader.election.enable",
            _T.BOOLEAN,
            False,
            "Whether a replica that is not in sync may become leader as a last resort, which loses records.",
            broker_keys=(("unclean.leader.election.enable", 1),),
        ),
    )
}


def parse_topic_config(properties: Mapping[str, str | None], *, suggests: bool = True) -> dict[str, Any]:
    """Parsed values of a topic's configuration, by dotted name. ``suggests`` as in `definition_of`.

    Raises:
        InvalidConfigurationError: an unknown key (with the nearest known one), a value out of its range, or values that
            contradict each other.
    """
    values = {name: definition_of(name, suggests=suggests).parse(text) for name, text in properties.items()}
    low, high = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms", _MAX_LONG)
    if low > high:
        raise InvalidConfigurationError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    return values


def definition_of(name: str, *, suggests: bool = True) -> LogConfigDefinition:
    """The definition of a topic configuration key.

    Raises:
        InvalidConfigurationError: the key is unknown. With ``suggests`` the error has the nearest known name, which
            takes milliseconds to find.
    """
    definition = DEFINITIONS.get(name)
    if definition is None and not suggests:
        raise InvalidConfigurationError(f"Unknown topic config name: {name}")
    if definition is None:
        from difflib import get_close_matches  # needed for errors only

        near = get_close_matches(name.replace("_", "."), DEFINITIONS, 1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidConfigurationError(f"Unknown topic config name: {name}{hint}")
    return definition
