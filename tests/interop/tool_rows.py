"""Arguments of Kafka's tools and of ours, and the parts of their outputs that must be equal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple


class Row(NamedTuple):
    """Arguments of Kafka's tool, and ours; ``fix`` reduces an output to the part that must be equal."""

    theirs: str
    ours: str
    fix: Callable[[str], Any]


# The relevant parts of an output


def lines(text: str) -> list[str]:
    """Return the distinct lines, sorted, with single spaces and sorted configurations."""

    def sorted_configs(word: str) -> str:
        return ",".join(sorted(word.split(","))) if "=" in word else word

    return sorted({" ".join(map(sorted_configs, line.split())) for line in text.splitlines() if line.strip()})


def table(text: str) -> list[str]:
    """Return the rows of tables; both tools print remarks beside them."""
    return [
        line for line in lines(text) if not line.startswith(("Warn", "Note", "Request succeeded", "Consumer group"))
    ]


def filled_table(text: str) -> list[str]:
    """Return the rows of tables without headers: Kafka's tool also prints the header of an empty table."""
    return [line for line in table(text) if not line.startswith("GROUP ")]


def settled(text: str) -> list[str]:
    """Return the rows of features, without the epoch, which grows meanwhile."""
    return lines(re.sub(r"(?<=Epoch: )\d+", "N", text))


def transactions(text: str) -> list[str]:
    """Return the titles and rows of transactions without the durations, which grow meanwhile.

    Nothing for titles alone: Kafka's tool also prints those of an empty table.
    """
    found = [re.sub(r"(?<= \d{13}) \d+(?= |$)", " N", line) for line in lines(text)]
    return found if len(found) > 1 else []


def quotas(text: str) -> dict[str, dict[str, float]]:
    """Return quotas by entity: the list has no order."""
    found = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"Quota configs for (.*) are (.*)", line):
            pairs = (pair.split("=") for pair in match[2].split(", "))
            found[match[1]] = {name: float(value) for name, value in pairs}
    return found


def acls(text: str) -> set[tuple[str, str]]:
    """Return entries with their resources."""
    found, resource = set(), ""
    for line in text.splitlines():
        resource = next(iter(re.findall(r"ResourcePattern\(.*?\)", line)), resource)
        found |= {(resource, entry) for entry in re.findall(r"\(principal=.*?\)", line)}
    return found


def document(text: str) -> Any:
    """Return a JSON document with sorted lists, without the other lines that Kafka's tool prints."""

    def by_order(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: by_order(one) for name, one in value.items()}
        return sorted(map(by_order, value), key=json.dumps) if isinstance(value, list) else value

    return by_order(json.loads(text[text.index("{") :] if text.startswith("{") else text[text.index("\n{") :]))


def quorum(text: str) -> list[str]:
    """Return the rows of the quorum's status, without offsets and times, which grow meanwhile."""
    return lines(re.sub(r"(?<=HighWatermark:)\s+\d+|(?<=MaxFollowerLag:)\s+\d+|(?<=LagTimeMs:)\s+-?\d+", " N", text))


def replicas_of_metadata(text: str) -> list[str]:
    """Return the rows of the metadata log's replicas, without offsets and times."""
    return [re.sub(r" \d+ \d+ \d{13} \d{13} | \d+ \d+ \d+ ms ago \d+ ms ago ", " N ", line) for line in lines(text)]


def measured(text: str) -> tuple[str, str, str]:
    """Return the columns of a measurement, and the amount read."""
    titles, values = (line for line in text.splitlines() if "," in line)
    read = values.split(", ")
    return titles, read[2], read[4]


def titles(text: str) -> str:
    """Return the columns of a measurement."""
    return text.splitlines()[0]


def nothing(_text: str) -> None:
    """Return None: only the exit status is compared."""


# The rows


def rows(verb: str, command: str, *arguments: str, fix: Callable[[str], Any] = lines) -> list[Row]:
    """Return rows with the same arguments for both tools."""
    return [Row(f"{verb} {more}", f"{command} {more}", fix) for more in arguments]


TOPICS: Final = [
    *rows(
        "--describe", "topics describe", "", "--exclude-internal", "--topics-with-overrides",
        "--unavailable-partitions", "--under-replicated-partitions", "--under-min-isr-partitions",
        "--at-min-isr-partitions", "--topic-id AAAAAAAAAAAAAAAAAAAAAQ",
    ),
    *[
        Row(f"--describe --topic {name}", f"topics describe {name}", lines)
        for name in ("or.*|pay", "no", "no --if-exists")
    ],
    *[Row(f"--list --topic {name}", f"topics list {name}", lines) for name in ("or.*", "no")],
    *rows("--list", "topics list", "", "--exclude-internal"),
    *[
        Row(f"--create --topic {words}", f"topics create {words}", fix)
        for words, fix in [
            ("{me} --partitions 2 --replication-factor 1 --config retention.ms=5000", lines),
            ("orders", lines), ("orders --if-not-exists", nothing), ("{me}2 --replication-factor 5", lines),
            ("{me}2 --config nope=1", lines), ("bad~name", lines), ("{me}2 --partitions 0", lines),
        ]
    ],
    *[
        Row(f"--alter --topic {words}", f"topics alter {words}", nothing)
        for words in ("{me} --partitions 3", "{me} --partitions 1", "no --partitions 3",
        "no --partitions 3 --if-exists")
    ],
    *[Row(f"--delete --topic {words}", f"topics delete {words}", nothing) for words in ("{me}", "no",
    "no --if-exists")],
]  # fmt: skip
CONFIGS: Final = [
    *rows(
        "--describe", "configs describe", "--entity-type topics", "--entity-type topics --entity-name orders --all",
        "--topic orders", "--entity-type brokers", "--broker 1",
        "--entity-type brokers --entity-default", "--broker-defaults", "", "--entity-type nope",
    ),
    *rows(
        "--alter", "configs alter",
        "--entity-type topics --entity-name orders --add-config retention.ms=12345,cleanup.policy=[compact,delete]",
        "--topic orders --delete-config cleanup.policy", "--topic orders --add-config nope=1", "--topic orders",
        "--topic orders --add-config retention.ms=x", "--topic no --add-config retention.ms=1",
        "--broker 1 --add-config log.cleaner.threads=2", "--broker 1 --add-config broker.id=2",
        "--broker-defaults --add-config log.cleaner.threads=2", "--topic orders --add-config-file no-such-file",
        "--topic orders --add-config retention.ms", "--entity-type topics --add-config retention.ms=1",
        "--entity-type topics --entity-default --add-config retention.ms=1", "--broker x --add-config a=1",
    ),
    *rows("--describe", "configs describe", "--entity-type brokers", "--broker 1", "--broker-defaults",
    "--topic orders"),
    *rows(
        "--alter", "configs alter", "--broker 1 --delete-config log.cleaner.threads",
        "--broker-defaults --delete-config log.cleaner.threads", "--topic orders --add-config retention.ms=-1",
        "--entity-type groups --entity-name g --add-config consumer.session.timeout.ms=46000",
        "--entity-type client-metrics --entity-name cm --add-config interval.ms=5000,metrics=[a.b,c.d]",
        "--user bob --add-config SCRAM-SHA-512=[iterations=8192,password=x]",
        "--user {me} --add-config producer_byte_rate=5,request_percentage=2.5",
        "--user {me} --delete-config producer_byte_rate,request_percentage", "--user bob --add-config nope=1",
        "--client {me} --add-config consumer_byte_rate=7", "--client {me} --delete-config consumer_byte_rate",
        "--client x --add-config nope=1",
        "--user-defaults --add-config consumer_byte_rate=9", "--user-defaults --delete-config consumer_byte_rate",
        "--user x --add-config producer_byte_rate=y", "--user {me} --delete-config SCRAM-SHA-256",
        "--ip 10.0.0.1 --add-config connection_creation_rate=5",
        "--ip no-such-host --add-config connection_creation_rate=5",
    ),
    *rows(
        "--describe", "configs describe", "--entity-type groups", "--group g", "--entity-type client-metrics",
        "--client-metrics cm", "--entity-type broker-loggers --entity-name 1",
    ),
]  # fmt: skip
QUOTAS: Final = [
    row
    for command in ("configs describe", "quotas describe")
    for row in rows(
        "--describe", command, "--entity-type users", "--entity-type clients",
        "--entity-type users --entity-type clients",
        "--entity-type ips", "--ip 10.0.0.1", "--user alice", "--user-defaults --client-defaults", "--user nobody",
        "--entity-type users --entity-name alice --entity-type clients --entity-name loader",
        "--entity-type users --entity-default", "--client loader", "--client-defaults",
        "--entity-type users --entity-default --entity-type clients --entity-default", "--ip-defaults",
        "--entity-type ips --entity-default", "--user alice --client loader", fix=quotas,
    )
]  # fmt: skip
CLIENT_METRICS: Final = [
    Row(f"--{words}", f"client-metrics {words}", lines)
    for words in (
        "alter --name lat --metrics org.a,org.b --interval 5000 --match client_id=x", "list", "describe",
        "describe --name lat", "describe --name no", "alter --name lat --interval x", "alter --name lat --interval 10",
        "delete", "delete --name lat", "delete --name lat",
    )
]  # fmt: skip
ACLS: Final = [
    Row(f"--{words}", f"acls {words}", acls)
    for words in (
        "add --allow-principal User:bob --operation Read --topic orders", "list", "list --topic orders",
        "add --allow-principal User:bob --allow-host 10.0.0.1 --operation Read --operation Write --topic pay "
        "--resource-pattern-type prefixed",
        "add --allow-principal User:bob --deny-principal User:eve --deny-host 1.2.3.4 --operation All --cluster",
        "add --allow-principal User:prod --producer --topic orders --idempotent --transactional-id t1",
        "add --allow-principal User:cons --consumer --topic orders --group g",
        "add --allow-principal User:x --operation CreateTokens --user-principal User:y",
        "add --allow-principal User:x --operation Describe --delegation-token tok",
        "add --allow-principal User:cons --consumer --topic orders", "add --operation Read --topic orders",
        "add --allow-principal User:x --operation Nope --topic orders", "add --allow-principal x --topic orders",
        "add --allow-principal User:x --operation Write --group g",
        "list", "list --principal User:bob --principal User:x", "list --cluster", "list --topic orders --group g",
        "list --topic paying --resource-pattern-type match", "list --topic pay --resource-pattern-type any",
        "remove --force --allow-principal User:bob --operation Read --topic orders",
        "remove --force --producer --allow-principal User:prod --topic orders",
        "remove --force --topic pay --resource-pattern-type prefixed", "list", "remove --force",
        "remove --force --cluster", "remove --force --group g", "remove --force --topic orders",
        "remove --force --transactional-id t1", "remove --force --user-principal User:y",
        "remove --force --delegation-token tok", "list",
    )
]  # fmt: skip
OFFSETS: Final = rows(
    "", "get-offsets", "", "--topic or.*|pay --partitions 0,2", "--topic-partitions orders:1-,pay", "--time earliest",
    "--topic-partitions :0", "--topic-partitions orders:0-2", "--topic-partitions orders:x", "--time -3", "--time nope",
    "--time 2500 --topic orders", "--time -4", "--time latest-tiered", "--exclude-internal-topics", "--topic no",
    "--topic orders --topic-partitions x", "--time earliest-pending-upload", "--time 99999999999999",
    "--topic orders --partitions x", "--topic-partitions orders:0,pay:0",
)  # fmt: skip
LOG_DIRS: Final = [
    Row(f"--describe {words}", f"log dirs --json {words}", document)
    for words in (
        "",
        "--topic-list orders,pay",
        "--broker-list 1,3",
        "--broker-list 1 --topic-list orders",
        "--topic-list no",
    )
]
FEATURES: Final = [
    Row(words, f"features {words}", settled)
    for words in (
        "describe", "upgrade --feature group.version=1 --dry-run", "upgrade --feature nope=1 --dry-run",
        "downgrade --metadata 3.9-IV0 --dry-run", "downgrade --unsafe --metadata 3.9-IV0 --dry-run",
        "disable --feature share.version --dry-run", "version-mapping", "version-mapping --release-version 4.0",
        "version-mapping --release-version 9.9", "feature-dependencies --feature eligible.leader.replicas.version=1",
        "feature-dependencies --feature transaction.version=2", "feature-dependencies --feature group.version=7",
    )
]  # fmt: skip
ELECTIONS: Final = rows(
    "", "leader-election", "--election-type preferred --topic orders --partition 0", "--topic orders --partition 0",
    "--election-type unclean --topic orders --partition 0", "--election-type preferred --topic orders",
    "--election-type preferred --topic no --partition 0", "--election-type nope --all-topic-partitions",
)  # fmt: skip
TRANSACTIONS: Final = [
    Row(words, f"transactions {words}", transactions)
    for words in (
        "list", "list --duration-filter 600000", "list --transactional-id-pattern op.*",
        "describe --transactional-id open",
        "describe --transactional-id no", "describe-producers --topic orders --partition 0",
        "describe-producers --topic orders --partition 0 --broker-id 1",
        "describe-producers --topic orders", "describe", "list --transactional-id-pattern [",
        "describe-producers --topic no --partition 0", "describe-producers --topic orders --partition 9",
        "abort --topic orders --partition 0",
        "abort --topic orders --partition 0 --start-offset 999",
    )
] + [
    Row(words, f"transactions {words}", nothing)
    for words in (
        "forceTerminateTransaction --transactionalId no", "find-hanging --broker-id 1", "find-hanging --topic orders",
        "find-hanging --topic orders --partition 0",
    )
]  # fmt: skip
QUORUM: Final = [
    *rows("describe", "quorum describe", "--status", fix=quorum),
    *rows(
        "describe", "quorum describe", "--replication", "--replication --human-readable", "--status --replication",
        fix=replicas_of_metadata,
    ),
    *rows(
        "remove-controller", "quorum remove-controller",
        "--controller-id 9 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ", "--controller-id 9", fix=nothing,
    ),
]  # fmt: skip
GROUPS: Final = [
    *rows("--list", "groups list", "", "--state", "--state stable,empty", "--type", "--type consumer", "--state nope"),
    *[
        Row(f"--describe {which} {what}", f"groups describe {which} {what}", fix)
        for which in ("--group empty", "--all-groups")
        for what, fix in [
            ("", table), ("--members", filled_table), ("--state", table), ("--members --verbose", filled_table),
            ("--state --verbose", table), ("--offsets --verbose", table),
        ]
    ],
    *[
        Row(f"--reset-offsets --group empty {words}", f"groups reset-offsets --group empty {words}", table)
        for scope in ("--topic orders:0", "--all-topics")
        for words in [
            f"{scope} {target}"
            for target in (
                "--to-earliest", "--to-latest", "--to-current", "--to-offset 1", "--to-offset 99", "--shift-by -1",
                "--by-duration PT1H", "--to-datetime 1970-01-01T00:00:03.000", "--to-earliest --export",
            )
        ]
    ],
    *[
        Row(f"--{words}", f"groups {words}", table)
        for words in (
            "reset-offsets --group empty --topic orders", "reset-offsets --all-topics --to-earliest",
            "reset-offsets --group empty --all-topics --to-earliest --to-latest",
            "reset-offsets --group empty --topic no --to-earliest",
            "reset-offsets --group empty --topic orders:9 --to-earliest",
            "reset-offsets --group empty --topic orders --to-earliest --execute --dry-run",
            "reset-offsets --group empty --all-topics --from-file no-such-file",
            "reset-offsets --group empty --topic orders --shift-by x",
            "reset-offsets --group empty --topic orders --by-duration 1H",
            "reset-offsets --group empty --topic orders --to-datetime yesterday",
            "reset-offsets --group empty --topic orders --to-offset -1",
            "reset-offsets --group empty --topic orders --topic pay --shift-by 1 --dry-run",
            "reset-offsets --group empty --group other --topic orders --to-latest --export",
            "delete-offsets --group empty", "describe --group empty --members --offsets",
            "reset-offsets --group {me} --topic orders --to-earliest --execute",
            "reset-offsets --group {me} --to-earliest",
            "delete-offsets --group {me} --topic orders:1",
        )
    ],
    Row("--delete --group {me}", "groups delete --group {me}", nothing),
]  # fmt: skip


# Records in and out


def _properties(text: str) -> tuple[str, ...]:
    """Return options of the line reader; a tilde stands for a space."""
    return tuple(word.replace("~", " ") for pair in text.split() for word in ("--reader-property", pair))


LINES: Final[list[tuple[tuple[str, ...], str]]] = [
    ((), "a\nb\n\n last"),
    ((), "with a return\r\nanother\r\n"),
    ((), ""),
    (("--sync", "--compression-codec", "lz4", "--request-required-acks", "1"), "c\n"),
    (("--compression-codec=gzip", "--timeout", "5", "--max-block-ms", "9000", "--batch-size", "999"), "c\n"),
    (("--producer-property", "compression.type=zstd", "--request-timeout-ms", "9000"), "d\n"),
    *[
        (_properties(properties), text)
        for properties, text in [
            ("parse.key=true", "k1\tv1\n\tno key\nk2\t\nk3\tone\ttwo\n"),
            ("parse.key=TRUE key.separator=::", "k::v::w\n"),
            ("parse.key=true", "before\tthe failure\nno separator\nbehind\tthe failure\n"),
            ("parse.key=true ignore.error=true", "no separator\nk\tv\n"),
            ("parse.headers=true", "a:1,b:2\tv\na:\tv\n:1\tv\n"),
            ("parse.headers=true parse.key=true", "a:1,a:2\tk\tv\n"),
            ("parse.headers=true parse.key=true", "a:1,,\tk\tv\n"),
            ("parse.headers=true parse.key=true", "a\tk\tv\n"),
            ("parse.headers=true parse.key=true", "a:1\tno key\n"),
            ("parse.headers=true parse.key=true", "no headers\n"),
            ("parse.headers=true parse.key=true ignore.error=true", "no headers\na\tk\tv\na:1\tno key\n"),
            (
                "parse.headers=true parse.key=true headers.delimiter=/ headers.separator=; headers.key.separator==",
                "a=x,y;b=2/k\tv\n",
            ),
            ("null.marker=NULL", "NULL\nNULLS\n"),
            ("null.marker=NULL parse.key=true parse.headers=true", "h:NULL\tNULL\tNULL\nNULL\tk\tv\n"),
            ("null.marker=NULL parse.headers=true", "NULL:1\tv\n"),
            ("null.marker= parse.key=true", "\t\nk\tv\n"),
            ("null.marker=, parse.key=true", "k\tv\n"),
            ("parse.headers=true headers.separator=:", "k:1\tv\n"),
            ("parse.key=true", "\u00e4\t\u4e2d \U0001f600\n"),
        ]
    ],
]  # fmt: skip
"""Options of the console producer, and its input."""


def _shown(*properties: str) -> str:
    return " ".join(f"--formatter-property {one}" for one in properties)


_JAVA: Final = "org.apache.kafka.common.serialization."
FORMATS: Final = [
    "", *[_shown(f"print.{part}=true") for part in ("timestamp", "partition", "offset", "delivery", "headers", "key")],
    _shown("print.value=false"), _shown("print.value=false", "print.key=true"),
    _shown("print.key=TRUE", "print.offset=true", "key.separator=;"), _shown("print.key=true", "line.separator=;"),
    _shown("print.headers=true", "headers.separator=;"), _shown("print.key=true", "null.literal=NULL"),
    _shown("print.key=true", "null.literal="), _shown("print.headers=true", "null.literal=-"),
    _shown(*[f"print.{part}=true" for part in ("timestamp", "partition", "offset", "delivery", "headers", "key")]),
    _shown(f"value.deserializer={_JAVA}StringDeserializer"), f"--value-deserializer {_JAVA}StringDeserializer",
    f"--key-deserializer {_JAVA}StringDeserializer " + _shown("print.key=true"),
    _shown("print.headers=true", f"headers.deserializer={_JAVA}StringDeserializer"),
    "--formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter",
    "--formatter org.apache.kafka.tools.consumer.LoggingMessageFormatter",
    "--formatter no.such.Formatter", f"--value-deserializer {_JAVA}IntegerDeserializer",
    "--enable-systest-events",
    "--isolation-level read_committed",
]  # fmt: skip
"""Options of the console consumer, of which the output counts to the byte."""
READING: Final = [
    Row(f"--topic {words}", f"consume {words}", lines)
    for words in (
        "shapes --partition 0 --offset 2 --max-messages 2", "shapes --from-beginning --max-messages 5",
        "shapes --group {me} --from-beginning --max-messages 3", "shapes --group {me} --max-messages 2",
        "shapes --partition 0 --timeout-ms 500", "shapes --partition 0 --offset latest --timeout-ms 500",
        "shapes --partition 1 --offset earliest --timeout-ms 500", "shapes --partition 0 --offset nowhere",
        "shapes --partition 0 --offset 1 --from-beginning", "shapes --partition x", "shapes --max-messages x",
        "shapes --isolation-level x", "shapes --include s.*",
        "shapes --command-property client.id=x --from-beginning --max-messages 1", "shapes --nonsense",
    )
] + [
    Row(words, f"consume {words}", lines)
    for words in ("--include shap.s --from-beginning --max-messages 5", "--include [ --timeout-ms 500", "")
]  # fmt: skip

# Measurements

LOADS: Final = [
    Row(words := f"--topic {{me}}-load --throughput -1 {more}", f"perf produce {words}", nothing)
    for more in (
        "--num-records 20 --record-size 7", "--num-records 5 --payload-file {payload} --payload-delimiter ;",
        "--num-records 3 --record-size 7 --command-property acks=1 --command-property compression.type=lz4",
        "--num-records 3 --record-size 7 --command-config {config} --reporting-interval 1000",
        "--num-records 9 --record-size 7 --transactional-id {me} --transaction-duration-ms 60000",
        "--num-records 3 --record-size 7 --payload-file {payload}", "--num-records 3 --payload-file {payload}-no",
        "--num-records x --record-size 7", "--num-records 3 --record-size 0", "--num-records 3 --record-size 7 --nope",
        "--num-records 3 --record-size 7 --command-property no.such=1=2=3 --command-property acks=7",
    )
]  # fmt: skip
MEASUREMENTS: Final = [
    Row(f"--topic measured --num-records {words}", f"perf consume --topic measured --num-records {words}{csv}", fix)
    for words, csv, fix in [
        ("10", " --csv", measured),
        ("10 --show-detailed-stats --timeout 30000", "", titles),
        ("10 --group g --fetch-size 1000", " --csv", measured),
        ("10 --command-property fetch.min.bytes=1", " --csv", measured), ("x", "", nothing),
    ]
]  # fmt: skip
