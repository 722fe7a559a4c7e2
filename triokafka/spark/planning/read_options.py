"""The read options of ``format("triokafka")``: names, defaults and errors of Spark's own Kafka connector.

`ReadOptions.parse` parses the options of a batch or of a streaming query. Comments mark the options that the connector
does not have. This module does no I/O.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.bounds import EARLIEST, LATEST, AtGroup, Bound
from triokafka.spark.planning.client_settings import GROUP_ID, ClientSettings, HiddenValues, client_settings, settable
from triokafka.spark.planning.decoding import NAMES as DECODING_NAMES
from triokafka.spark.planning.decoding import DecodingOptions
from triokafka.spark.planning.offset_options import check_bounds, ending_bound, starting_bound
from triokafka.spark.planning.offsets_json import parse_partitions
from triokafka.spark.planning.option_values import choice, column_names, duration_ms, flag, whole
from triokafka.spark.planning.topics import Assign, Subscribe, SubscribePattern, Topics
from triokafka.spark.planning.unknown_settings import PREFIX, refuse_without_prefix

_log: Final = logging.getLogger("triokafka.spark")

NAMES: Final = (
    # Options of the connector
    "assign", "subscribe", "subscribePattern", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets",
    "startingOffsetsByTimestampStrategy", "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets",
    "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
    "groupIdPrefix", "includeHeaders",
    # Additional options
    "offsetsBinding", "maxPartitions", "maxBytesPerTrigger", "maxBytesPerPartition", "batchRows", "batchBytes",
    "fetchAhead", "columns", "commitGroupId", "onMissingPartitions", "dataLossPolicy", "latestOffsetRegressionTimeout",
    *DECODING_NAMES,
    "initialOffsetsPath",
)  # fmt: skip
"""Every option without the prefix ``kafka.``, spelt as in the documentation."""

_STRATEGIES: Final = ("subscribe", "subscribepattern", "assign")
# Gaps from compaction are not a loss under any policy; the third only states that explicitly.
_POLICIES: Final = {"fail": True, "skip": False, "fail-but-tolerate-compaction": True}
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "maxBytesPerPartition",
)  # fmt: skip
# Options of Spark itself, and of the sink, that may be present as well.
_SPARKS: Final = frozenset(("path", "topic", "checkpointlocation", "queryname"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The validated options of one read. Frozen, small when pickled, and without secrets in its repr.

    Args:
        streaming: whether this is a streaming query.
        client: brokers and further client settings.
        topics: the partitions to read.
        starting: the start of a batch or of a new streaming query.
        ending: the end of a batch; a streaming query always reads to the end of the log.
        on_missing_partitions: the start of partitions that offsets or timestamps by partition omit, and of partitions
            without a committed offset: `EARLIEST` or `LATEST`, or None for an error. As an end it is always `LATEST`.
        late_binding: batch only: whether tasks look up the beginning and the end of partitions.
        fail_on_data_loss: whether data loss fails the query; otherwise it is a warning.
        latest_offset_regression_ms: how long to wait for end offsets that moved back, before that counts as data loss;
            None waits for the connector's retries only.
        poll_timeout_ms: a task without progress for this long fails.
        fetch_offset_retries: the maximum number of tries of a driver request.
        fetch_offset_retry_interval_ms: the delay between tries.
        max_offsets_per_trigger: the maximum number of offsets per micro-batch.
        min_offsets_per_trigger: a micro-batch waits for this many offsets, at most ``max_trigger_delay_ms``.
        max_bytes_per_trigger: the maximum number of bytes per micro-batch, estimated.
        max_bytes_per_partition: the maximum number of bytes per partition of a micro-batch, estimated.
        min_partitions: large ranges are split until there are about this many tasks.
        max_records_per_partition: the maximum number of offsets per task.
        max_partitions: ranges are merged until there are at most this many tasks.
        group_id: ``kafka.group.id``. No consumer joins it; it names the group of ``startingOffsets=group``.
        group_id_prefix: the connector's prefix of group ids; unused.
        commit_group_id: the group to which end offsets are committed, for lag tools.
        initial_offsets_path: streaming only: a file that keeps the query's initial offsets.
        include_headers: whether there is a column ``headers``.
        columns: the columns, in the order of the schema.
        batch_rows, batch_bytes: approximate limits of an Arrow batch for Spark; the first one reached applies.
        fetch_ahead: the number of Arrow batches that may wait for Spark; rounded up to a multiple of those decoded at
            once.
        decoding: the decoding of keys and values.
        warnings: messages about options that have no effect.
    """

    streaming: bool
    client: ClientSettings
    topics: Topics
    starting: Bound
    ending: Bound
    on_missing_partitions: int | None
    late_binding: bool
    fail_on_data_loss: bool
    latest_offset_regression_ms: int | None
    poll_timeout_ms: int
    fetch_offset_retries: int
    fetch_offset_retry_interval_ms: int
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_bytes_per_trigger: int | None
    max_bytes_per_partition: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    max_partitions: int | None
    group_id: str | None
    group_id_prefix: str
    commit_group_id: str | None
    initial_offsets_path: str | None
    include_headers: bool
    columns: tuple[str, ...]
    batch_rows: int
    batch_bytes: int
    fetch_ahead: int
    decoding: DecodingOptions = field(default_factory=DecodingOptions, compare=False)
    warnings: tuple[str, ...] = ()

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
        """Parse the options that the user passed to Spark. Names are case-insensitive, as in Spark.

        Raises:
            ConfigurationError: an option is missing or invalid; the message names it.
        """
        given = HiddenValues((name.lower(), value) for name, value in options.items())
        warnings = _unknown_names(given)
        group_id = given.get(GROUP_ID) or None
        if streaming:
            _refuse_ends(given)
        starting = starting_bound(given, streaming=streaming, group_id=group_id)
        ending = ending_bound(given)
        on_missing = choice(
            given, "onMissingPartitions", "error", {"error": None, "earliest": EARLIEST, "latest": LATEST}
        )
        check_bounds(starting, ending, missing_ok=on_missing is not None)
        topics = _topics(given)
        min_partitions = whole(given, "minPartitions", at_least=1, largest=2**31 - 1)
        max_partitions = whole(given, "maxPartitions", at_least=1, largest=2**31 - 1)
        max_records = whole(given, "maxRecordsPerPartition", at_least=1)
        if group_id is not None and not isinstance(starting, AtGroup):
            warnings.append(_group_id_warning("groupidprefix" in given))
        client, more = client_settings(given)
        fewest, most = (whole(given, f"{end}OffsetsPerTrigger", at_least=1) for end in ("min", "max"))
        if fewest is not None and most is not None and fewest > most:
            raise ConfigurationError(
                f"The value of minOffsetPerTrigger({fewest}) is higher than the maxOffsetsPerTrigger({most})."
            )
        if min_partitions is not None and max_partitions is not None and min_partitions > max_partitions:
            raise ConfigurationError(
                f"The value of minPartitions({min_partitions}) is higher than the maxPartitions({max_partitions})."
            )
        headers = flag(given, "includeHeaders", False)
        columns = column_names(given, headers)
        if not streaming:
            warnings += [f"{name} option ignored in batch queries" for name in _STREAM_ONLY if name.lower() in given]
        return cls(
            streaming=streaming,
            client=client,
            topics=topics,
            starting=starting,
            ending=ending,
            on_missing_partitions=on_missing,
            late_binding=choice(given, "offsetsBinding", "snapshot", {"snapshot": False, "late": True}),
            fail_on_data_loss=_fail_on_data_loss(given),
            latest_offset_regression_ms=duration_ms(given, "latestOffsetRegressionTimeout"),
            poll_timeout_ms=_poll_timeout(given, client),
            fetch_offset_retries=whole(given, "fetchOffset.numRetries", at_least=1, largest=2**31 - 1) or 3,
            fetch_offset_retry_interval_ms=_interval(given),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=fewest,
            max_trigger_delay_ms=_max_trigger_delay(given),
            max_bytes_per_trigger=whole(given, "maxBytesPerTrigger", at_least=1),
            max_bytes_per_partition=whole(given, "maxBytesPerPartition", at_least=1),
            min_partitions=min_partitions,
            max_records_per_partition=max_records,
            max_partitions=max_partitions,
            group_id=group_id,
            group_id_prefix=given.get("groupidprefix") or f"spark-kafka-{'source' if streaming else 'relation'}",
            commit_group_id=given.get("commitgroupid") or None,
            initial_offsets_path=given.get("initialoffsetspath") or None,
            include_headers=headers,
            columns=columns,
            decoding=DecodingOptions.parse(given, topics, columns),
            batch_rows=whole(given, "batchRows", at_least=1, largest=1_000_000) or 20_000,
            batch_bytes=whole(given, "batchBytes", at_least=1024, largest=1 << 30) or 1 << 20,
            fetch_ahead=whole(given, "fetchAhead", at_least=1, largest=1_000) or 2,
            warnings=tuple(warnings + more),
        )

    @classmethod
    def parse_either(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse options for a batch or a streaming query, whichever they are valid for.

        Spark asks for the schema before it tells the kind of query. Options that are invalid for both kinds fail here.
        """
        try:
            return cls.parse(options)
        except ConfigurationError as in_batch:
            try:
                return cls.parse(options, streaming=True)
            except ConfigurationError:
                raise in_batch from None

    def log_warnings(self) -> None:
        """Log the warnings about options that have no effect."""
        for warning in self.warnings:
            _log.warning("format 'triokafka': %s", warning)


def _topics(given: Mapping[str, str]) -> Topics:
    strategies = [name for name in _STRATEGIES if name in given]
    which = f"of the following options {{}} be specified for Kafka source: {', '.join(_STRATEGIES)}."
    if not strategies:
        raise ConfigurationError(f"One {which.format('must')} See the docs for more details.")
    if len(strategies) > 1:
        raise ConfigurationError(f"Only one {which.format('can')} See the docs for more details.")
    value = given[strategies[0]]
    if "assign" in given:
        if not value.strip().startswith("{"):
            raise ConfigurationError(
                f"No topicpartitions to assign as specified value for option 'assign' is '{value}'"
            )
        partitions = parse_partitions(value)
        if not partitions:
            raise ConfigurationError(
                f"No topicpartitions to assign as specified value for option 'assign' is '{value}'"
            )
        return Assign(partitions)
    if "subscribe" in given:
        topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not topics:
            raise ConfigurationError(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'"
            )
        return Subscribe(topics)
    if not value.strip():
        raise ConfigurationError(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{value}'"
        )
    return SubscribePattern(value.strip())


def _refuse_ends(given: Mapping[str, str]) -> None:
    if "endingoffsets" in given:
        raise ConfigurationError("ending offset not valid in streaming queries")
    if "endingoffsetsbytimestamp" in given or "endingtimestamp" in given:
        raise ConfigurationError("ending timestamp not valid in streaming queries")


def _fail_on_data_loss(given: Mapping[str, str]) -> bool:
    fails = flag(given, "failOnDataLoss", True)
    policy: bool = choice(given, "dataLossPolicy", "fail" if fails else "skip", _POLICIES)
    if "failondataloss" in given and "datalosspolicy" in given and policy != fails:
        raise ConfigurationError(
            f"failOnDataLoss={given['failondataloss']} and dataLossPolicy={given['datalosspolicy']} contradict each"
            " other: leave one out"
        )
    return policy


def _poll_timeout(given: Mapping[str, str], client: ClientSettings) -> int:
    """Return the poll timeout. A client's API timeout applies to tasks too; the default is Spark's network timeout."""
    patience = whole(given, "kafkaConsumer.pollTimeoutMs", at_least=1)
    return patience or int(client.values.get("default_api_timeout_ms", 0)) or 120_000


def _max_trigger_delay(given: Mapping[str, str]) -> int:
    delay = duration_ms(given, "maxTriggerDelay")
    return 15 * 60_000 if delay is None else delay


def _interval(given: Mapping[str, str]) -> int:
    interval = whole(given, "fetchOffset.retryIntervalMs", at_least=0)
    return 1_000 if interval is None else interval


def _group_id_warning(has_prefix: bool) -> str:
    return (
        "Kafka option 'kafka.group.id' has been set on this query. Nothing joins that group or commits to it: Spark"
        " keeps the offsets. It only names the group of startingOffsets=group; 'commitGroupId' commits to a group"
        + (". Option groupIdPrefix will be ignored as option kafka.group.id has been set." if has_prefix else "")
    )


def _unknown_names(given: Mapping[str, str]) -> list[str]:
    """Return warnings about unknown names; refuses a name that resembles a known one, as a probable typo."""
    known = {name.lower(): name for name in NAMES}
    unknown = []
    for name in given:
        if name.startswith(PREFIX) or name in known or name in _SPARKS:
            continue
        refuse_without_prefix(name, "read", settable())
        near = difflib.get_close_matches(name, (*known, "kafka.bootstrap.servers"), n=1, cutoff=0.75)
        if near:
            raise ConfigurationError(f"Unknown option '{name}'; did you mean '{known.get(near[0], near[0])}'?")
        unknown.append(f"'{name}'")
    return [f"options that the source does not know are ignored: {', '.join(unknown)}"] if unknown else []
