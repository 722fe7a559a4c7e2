"""Writes the generated pages: ``python -m docs.generate``, or ``make docs``.

``docs/apis.md`` and the tables of ``docs/producer.md`` and ``docs/metrics.md`` are kept in the repository and tested
to be current; ``docs/reference/`` is made on demand, and ignored by git. Everything comes from the declarations:
messages, options, metrics and error classes.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from docs import options, python_api
from docs.absent_metrics import ABSENT
from docs.kafka_apis import KAFKA_APIS, KAFKA_RELEASE
from docs.tables import code, table
from triokafka import errors
from triokafka.broker_stub.api import CONTROLLER_MODULES, Handlers
from triokafka.broker_stub.metrics.declared import DECLARED as BROKER_METRICS
from triokafka.client.config import ClientOptions, ProducerOptions
from triokafka.client.metrics.catalogue import GROUPS as CLIENT_GROUPS
from triokafka.client.producer.metrics import METRICS
from triokafka.protocol import primitives
from triokafka.protocol.api import API_NAMES, MESSAGE_MODULES, request_type, response_type
from triokafka.protocol.message import Field, Message, Struct, iter_structs, version_range

DOCS: Final = Path(__file__).parent
REFERENCE: Final = DOCS / "reference"
STORED: Final = ("offset_commit", "group_metadata", "transaction_log", "cluster_metadata", "control_records")
_MADE: Final = "<!-- Made by `python -m docs.generate`; change the declarations instead. -->"
_MADE_BELOW: Final = "<!-- What follows is made by `python -m docs.generate`; change the declarations instead. -->"
_GIVEN_UP: Final = "removed from Kafka"


def apis_page() -> str:
    """Every API of Kafka, and its versions in this package: the page ``docs/apis.md``."""
    of_broker, of_controller = Handlers(), Handlers(CONTROLLER_MODULES)
    handlers = {**of_controller, **of_broker}
    rows = []
    for key, (name, kafka) in KAFKA_APIS.items():
        if kafka == "none":
            rows.append([key, name, _GIVEN_UP, "", ""])
            continue
        declared = str(request_type(key).versions) if key in API_NAMES else ""
        handler = handlers.get(key)
        served = str(version_range(f"{handler.versions[0]}-{handler.versions[-1]}")) if handler else ""
        rows.append([key, name, kafka, declared, served])
    live = sum(kafka != "none" for _, kafka in KAFKA_APIS.values())
    return _page(
        "API versions",
        f"The APIs of Apache Kafka {KAFKA_RELEASE}, with three ranges of versions: Kafka's stable versions, the "
        "versions declared in this package (which it encodes and decodes, and its clients use), and the versions that "
        "its broker or controller serves. An empty cell means none. "
        f"Of {live} APIs, {len(API_NAMES)} are declared; brokers serve {len(of_broker)}, and controllers "
        f"{len(of_controller)} on listeners of their own.",
        table(["key", "API", "Kafka", "declared", "served"], rows, numbers=1),
        "Like Kafka's, the broker advertises Produce from version 0, although it serves only version 3 and later: if a "
        "broker does not advertise the old versions, librdkafka assumes that it does not support compression.",
    )


def producer_page() -> str:
    """Return ``docs/producer.md``: its hand-written part, followed by the tables of options and metrics."""
    written, _, _ = (DOCS / "producer.md").read_text(encoding="utf-8").partition(_MADE_BELOW)
    shared = {name for name, _, _ in ClientOptions.describe()}
    parts = [
        written.rstrip(),
        _MADE_BELOW,
        "## Options",
        "Keyword arguments of `triokafka.Producer`. *own* means that Kafka has no such property.",
        options.options_table([row for row in ProducerOptions.describe() if row[0] not in shared], ProducerOptions),
        "Options of all clients:",
        options.options_table(ClientOptions.describe(), ClientOptions),
        "## Metrics",
        "Totals since the start, averages, and current values. To get a rate, divide the difference of two readings by "
        "the time between them.",
        table(["metric", "meaning"], [[f"`{name}`", meaning] for name, meaning in METRICS.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def metrics_page() -> str:
    """Return ``docs/metrics.md``: its hand-written part, followed by the catalogues."""
    written, _, _ = (DOCS / "metrics.md").read_text(encoding="utf-8").partition(_MADE_BELOW)
    parts = [written.rstrip(), _MADE_BELOW, "## Client metrics"]
    for group, (tags, declared) in CLIENT_GROUPS.items():
        parts += [f"### {group}", f"Tags: {', '.join(code(tag) for tag in ('client-id', *tags))}."]
        rows = [[code(name), one.unit, one.meaning] for name, one in declared.items()]
        parts.append(table(["metric", "unit", "meaning"], rows))
    parts.append("## Broker and controller metrics")
    rows = [[code(name), one.kind, one.unit, one.meaning] for name, one in BROKER_METRICS.items()]
    parts.append(table(["MBean", "kind", "unit", "meaning"], rows))
    parts += ["## Absent metrics", "Metrics of Apache Kafka 4.3 that triokafka lacks, as regular expressions."]
    absent = [[code(mbean), code(attribute), why] for mbean, attribute, why in ABSENT]
    parts.append(table(["MBean", "attribute", "reason"], absent))
    return "\n\n".join(parts) + "\n"


def message_page(api_key: int) -> str:
    """One API: its fields by version, with what they mean and which errors they can cause or carry."""
    module = import_module(MESSAGE_MODULES[api_key])
    title, _, rest = _document(module).partition("\n\n")
    name = API_NAMES[api_key]
    kafka = KAFKA_APIS[api_key][1]
    versions = f"Kafka {KAFKA_RELEASE} has versions {kafka}; declared: {request_type(api_key).versions}."
    parts = [_sentence(title.partition(": ")[2]), versions, rest]
    for message in (request_type(api_key), response_type(api_key)):
        parts += _message_parts(message)
    return _page(f"{name} (API key {api_key})", *parts)


def stored_page(name: str) -> str:
    """The messages of one module of ``protocol/stored``."""
    module = import_module(f"triokafka.protocol.stored.{name}")
    parts = [_document(module)]
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__:
            parts += _message_parts(value)
    return _page(f"Stored: {name.replace('_', ' ')}", *parts)


def _message_parts(message: type[Message]) -> Iterator[str]:
    flexible = f"flexible: {message.flexible}" if str(message.flexible) != "none" else "never flexible"
    yield f"## {message.__name__}"
    yield f"{_document(message)}\n\nVersions {message.all_versions}; {flexible}."
    yield _fields_table(message)
    for struct in iter_structs(message):
        yield f"### {struct.__name__}"
        yield _document(struct)
        yield _fields_table(struct)


def _fields_table(struct: type[Struct]) -> str:
    if not struct.__fields__:
        return "No fields."
    rows = [
        [f"`{f.name}`", _type_name(f), _when(f), options.shown(_default_of(f)), f.doc, ", ".join(f.errors)]
        for f in struct.__fields__
    ]
    return table(["field", "type", "versions", "default", "meaning", "errors"], rows)


_TYPE_NAMES: Final = {
    id(value): name.lower()
    for name, value in vars(primitives).items()
    if name[0].isupper() and not inspect.isclass(value)
}


def _type_name(field: Field) -> str:
    inner = field.type.element if field.is_array else field.type
    name = inner.__name__ if inspect.isclass(inner) else _TYPE_NAMES[id(inner)]
    return f"list of {name}" if field.is_array else name


def _when(field: Field) -> str:
    said = [str(field.versions)]
    if str(field.nullable) != "none":
        said.append(f"null: {field.nullable}")
    if field.tag is not None:
        said.append(f"tag {field.tag}: {field.versions}")
    if field.ignorable:
        said.append("ignorable")
    return ", ".join(said)


def _default_of(field: Field) -> Any:
    default = field.default()
    return type(default).__name__ if isinstance(default, Struct) else default


def errors_page() -> str:
    """Every error class, first those of the protocol by their code."""
    classes = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.KafkaError)
    ]
    coded = sorted((value for value in classes if "code" in vars(value)), key=lambda value: int(vars(value)["code"]))
    coded = [value for value in coded if value is not errors.BrokerResponseError]
    own = [value for value in classes if value not in coded]
    return _page(
        "Errors",
        "All are in `triokafka.errors` and subclasses of `KafkaError`. Retriable: the same call may succeed later. "
        "Stale: the client's metadata of the cluster is out of date, and the client refreshes it.",
        "## With a code of the protocol",
        table(
            ["code", "class", "retriable", "meaning", "what to do"],
            [[vars(value)["code"], *_error_row(value)] for value in coded],
            numbers=1,
        ),
        "## The client's own",
        table(["class", "retriable", "meaning", "what to do"], [_error_row(value) for value in own]),
    )


def _error_row(value: type[errors.KafkaError]) -> list[str]:
    retriable = "yes, stale" if value.invalid_metadata else "yes" if value.retriable else ""
    return [f"`{value.__name__}`", retriable, _document(value).partition("\n\n")[0], value.advice]


def reference_pages() -> dict[str, str]:
    """All pages of ``docs/reference`` by file name."""
    pages = {f"{name}.md": message_page(key) for key, name in API_NAMES.items()}
    pages |= {f"stored-{name.replace('_', '-')}.md": stored_page(name) for name in STORED}
    pages |= {name: _page(title, *parts) for name, (title, parts) in options.pages().items()}
    pages |= {name: _page(title, text) for name, (title, text) in python_api.pages().items()}
    pages["errors.md"] = errors_page()
    pages["messages.md"] = messages_page()
    pages["index.md"] = reference_index()
    return pages


def messages_page() -> str:
    """The list of all messages, which is apart from the API that programs use."""
    return _page(
        "Messages",
        "Each request and response of Kafka's protocol, and each record that brokers store in topics of their own: the "
        "fields by version, with their meaning and errors. Programs that use the clients need none of these pages.",
        "## Requests and responses",
        "\n".join(f"- [{name}]({name}.md) ({key})" for key, name in API_NAMES.items()),
        "## Stored records",
        "\n".join(f"- [{name.replace('_', ' ')}](stored-{name.replace('_', '-')}.md)" for name in STORED),
    )


def reference_index() -> str:
    """The list of the generated pages, by group of the side bar."""
    python = {name: title for name, (title, _) in python_api.pages().items()}
    configuration = {name: title for name, (title, _) in options.pages().items()}
    return _page(
        "Reference",
        "Pages that are made from the code: the Python API, all options, all errors, all messages.",
        "## Python API",
        "\n".join(f"- [{title}]({name})" for name, title in {**python, "errors.md": "Errors"}.items()),
        "## Configuration",
        "\n".join(f"- [{title}]({name})" for name, title in configuration.items()),
        "## Wire protocol",
        "- [Messages](messages.md)",
    )


def _document(thing: object) -> str:
    text = inspect.getdoc(thing) or ""
    return text.replace("``", "`")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", _MADE, *(part.strip() for part in parts if part.strip())]) + "\n"


def main() -> None:
    """Write all generated pages."""
    (DOCS / "apis.md").write_text(apis_page(), encoding="utf-8")
    (DOCS / "producer.md").write_text(producer_page(), encoding="utf-8")
    (DOCS / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    shutil.rmtree(REFERENCE, ignore_errors=True)
    REFERENCE.mkdir()
    pages = reference_pages()
    for name, text in pages.items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
    print(f"docs/apis.md, docs/producer.md, docs/metrics.md and {len(pages)} pages in docs/reference")


if __name__ == "__main__":
    main()
